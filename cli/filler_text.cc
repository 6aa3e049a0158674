// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "filler_text.h"

namespace quest::cli {
namespace {

constexpr const char* kPlaces[] = {"harbour", "orchard", "library", "valley",  "market",
                                   "bridge",  "station", "meadow",  "kitchen", "lighthouse"};
constexpr const char* kPeople[] = {"A carpenter",  "The old teacher", "My neighbour", "One sailor",
                                   "The gardener", "A young doctor",  "Her cousin",   "The postman",
                                   "A musician",   "Our guide"};
constexpr const char* kActs[] = {"repaired",   "described", "painted", "walked past", "remembered",
                                 "looked for", "measured",  "praised", "sketched",    "avoided"};
constexpr const char* kThings[] = {"a wooden boat",    "the narrow road",   "an iron gate",
                                   "the long winter",  "a basket of pears", "the broken clock",
                                   "an unread letter", "the quiet river",   "a borrowed coat",
                                   "the western wall"};
constexpr const char* kTimes[] = {"before dawn",       "in early spring", "after the rain",
                                  "on a grey morning", "last autumn",     "for many years",
                                  "without a word",    "near midnight",   "once a week",
                                  "while others slept"};

// A generator of our own: those of the standard library promise no sequence across machines.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 2 + 1) {}
  template <std::size_t N>
  const char* pick(const char* const (&words)[N]) {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return words[(state_ >> 33) % N];
  }

 private:
  std::uint64_t state_;
};

}  // namespace

std::string filler_text(std::size_t sentences, std::uint64_t seed) {
  Random random(seed);
  std::string text;
  for (std::size_t i = 0; i < sentences; ++i) {
    text += random.pick(kPeople);
    text += std::string(" ") + random.pick(kActs);
    text += std::string(" ") + random.pick(kThings);
    text += std::string(" near the ") + random.pick(kPlaces);
    text += std::string(" ") + random.pick(kTimes);
    text += i % 6 == 5 ? ".\n\n" : ". ";
  }
  return text;
}

std::vector<Token> filler_tokens(const Tokenizer& tokenizer, std::int64_t count) {
  constexpr std::size_t kShortestSentence = 8;  // tokens; every word is one at least
  const auto wanted = static_cast<std::size_t>(count);
  std::vector<Token> tokens =
      tokenizer.tokenize(filler_text(wanted / kShortestSentence + 1, 1), true, false);
  tokens.resize(wanted);
  return tokens;
}

}  // namespace quest::cli
