// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "eval/random.h"
#include "quest/error.h"
#include "quest/eval/passkey.h"

namespace quest::eval {
namespace {

constexpr std::size_t kDigits = 5;

/// A paragraph that is put into the filler.
struct Insertion {
  double depth = 0;
  std::string text;
  std::string key;  ///< empty: nobody asks for it
};

std::string random_key(Random& random) {
  std::string key(1, static_cast<char>('1' + random.below(9)));
  while (key.size() < kDigits) key.push_back(static_cast<char>('0' + random.below(10)));
  return key;
}

/// Another digit, and no leading zero.
char other_digit(char digit, bool leading, Random& random) {
  const int lowest = leading ? 1 : 0;
  const int count = 10 - lowest;
  const int shift = 1 + static_cast<int>(random.below(static_cast<std::uint64_t>(count) - 1));
  return static_cast<char>('0' + lowest + (digit - '0' - lowest + shift) % count);
}

/// The key with one or two digits changed.
std::string similar_key(const std::string& key, Random& random) {
  std::string other = key;
  const std::size_t first = random.below(kDigits);
  const std::size_t changes = 1 + random.below(2);
  for (std::size_t i = 0; i < changes; ++i) {
    const std::size_t place = (first + 2 * i) % kDigits;
    other[place] = other_digit(key[place], place == 0, random);
  }
  return other;
}

std::string statement(const std::string& name, const std::string& number) {
  return "The " + name + " is " + number + ". Remember it. " + number + " is the " + name + ".";
}

struct Script {
  std::vector<Insertion> insertions;
  std::string question;
};

Script plain(const PasskeyTrial& trial, Random& random) {
  const std::string key = random_key(random);
  return {{{trial.depth, statement("pass key", key), key}},
          "What is the pass key? The pass key is"};
}

Script with_distractors(const PasskeyTrial& trial, Random& random) {
  Script script = plain(trial, random);
  const std::string key = script.insertions.front().key;
  const char* const names[] = {"phone extension", "invoice number", "room code", "ticket number"};
  double depth = 0.1;
  for (const char* const name : names) {
    script.insertions.push_back({depth, statement(name, similar_key(key, random)), ""});
    depth += 0.25;
  }
  return script;
}

Script reversed(const PasskeyTrial& trial, Random& random) {
  const std::string key = random_key(random);
  const std::string other = random_key(random);
  std::string talk = statement("pass key of the orchard", other);
  talk += " Everybody in the orchard talks about " + other + ". They wrote " + other +
          " on the gate and painted " + other + " on every basket. The children sing " + other +
          " on their way home, the gardener counts his trees until " + other +
          ", and nobody in the orchard will ever forget " + other +
          ". The pass key of the orchard"
          " was " +
          other + " last year and it is still " + other + " today.";
  return {{{trial.depth, statement("pass key of the harbour", key), key}, {0.95, talk, ""}},
          "What is the pass key of the harbour? The pass key of the harbour is"};
}

Script with_evidence(const PasskeyTrial& trial, Random& random) {
  const std::string first = random_key(random);
  const std::string second = random_key(random);
  const double other_depth = trial.depth < 0.5 ? trial.depth + 0.5 : trial.depth - 0.5;
  return {{{trial.depth, statement("first half of the pass key", first), first},
           {other_depth, statement("second half of the pass key", second), second}},
          "What are both halves of the pass key? The first half of the pass key is"};
}

Script script_of(const PasskeyTrial& trial, Random& random) {
  switch (trial.variant) {
    case PasskeyVariant::kPlain:
      return plain(trial, random);
    case PasskeyVariant::kDistractors:
      return with_distractors(trial, random);
    case PasskeyVariant::kReversal:
      return reversed(trial, random);
    case PasskeyVariant::kEvidence:
      return with_evidence(trial, random);
  }
  throw InvalidArgument("pass key: unknown variant");
}

/// An insertion as tokens, with the mentions of its key.
struct Paragraph {
  double depth = 0;
  std::vector<Token> tokens;
  Evidence mentions;
  std::string key;
};

Paragraph tokenised(const Tokenizer& tokenizer, const Insertion& insertion) {
  Paragraph paragraph;
  paragraph.depth = insertion.depth;
  paragraph.key = insertion.key;
  paragraph.tokens = tokenizer.tokenize("\n\n" + insertion.text + "\n\n", false, false);
  if (insertion.key.empty()) return paragraph;
  std::string text;
  std::vector<std::size_t> ends;  // of each token in the text
  for (const Token token : paragraph.tokens) {
    text += tokenizer.piece(token);
    ends.push_back(text.size());
  }
  // The first token that ends beyond a character holds it.
  const auto token_of = [&ends](std::size_t character) {
    return std::upper_bound(ends.begin(), ends.end(), character) - ends.begin();
  };
  for (std::size_t at = text.find(insertion.key); at != std::string::npos;
       at = text.find(insertion.key, at + kDigits)) {
    paragraph.mentions.push_back({token_of(at), token_of(at + kDigits - 1) + 1});
  }
  if (paragraph.mentions.empty()) {
    throw InvalidArgument("pass key: the model's vocabulary does not spell digits");
  }
  return paragraph;
}

std::int64_t wanted_slot(PagePlace place, std::int32_t page_size) {
  switch (place) {
    case PagePlace::kStart:
      return 0;
    case PagePlace::kMiddle:
      return page_size / 2;
    case PagePlace::kEnd:
      return page_size - 1;
  }
  return 0;
}

/// The start of a sentence nearest to `wanted`, at most `limit`; the first one is 0.
std::int64_t sentence_start_near(const std::vector<std::int64_t>& starts, std::int64_t wanted,
                                 std::int64_t limit) {
  std::int64_t best = 0;
  for (const std::int64_t start : starts) {
    if (start <= limit && std::abs(start - wanted) < std::abs(best - wanted)) best = start;
  }
  return best;
}

void append(std::vector<Token>& tokens, std::span<const Token> more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
}

/// Material with paragraph i put in before filler token cuts[i].
void assemble(const std::vector<Token>& begin_of_text, const std::vector<Token>& filler,
              const std::vector<Paragraph>& paragraphs, const std::vector<std::int64_t>& cuts,
              PasskeyPrompt& prompt) {
  std::vector<std::size_t> order(paragraphs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return cuts[a] < cuts[b]; });
  prompt.material = begin_of_text;
  std::vector<std::int64_t> begins(paragraphs.size());
  std::int64_t done = 0;
  const auto add_filler = [&](std::int64_t end) {
    append(prompt.material, std::span(filler).subspan(static_cast<std::size_t>(done),
                                                      static_cast<std::size_t>(end - done)));
    done = end;
  };
  for (const std::size_t i : order) {
    add_filler(cuts[i]);
    begins[i] = static_cast<std::int64_t>(prompt.material.size());
    append(prompt.material, paragraphs[i].tokens);
  }
  add_filler(static_cast<std::int64_t>(filler.size()));
  prompt.keys.clear();
  prompt.evidence.clear();
  for (std::size_t i = 0; i < paragraphs.size(); ++i) {
    if (paragraphs[i].key.empty()) continue;
    prompt.keys.push_back(paragraphs[i].key);
    prompt.evidence.push_back(paragraphs[i].mentions);
    for (TokenRange& mention : prompt.evidence.back()) {
      mention.begin += begins[i];
      mention.end += begins[i];
    }
  }
}

}  // namespace

PasskeyPrompt passkey_prompt(const Tokenizer& tokenizer, const Haystack& haystack,
                             const PasskeyTrial& trial, std::int32_t page_size) {
  Random random(trial.seed);
  const Script script = script_of(trial, random);
  const std::uint64_t sentence = random.next();
  PasskeyPrompt prompt;
  prompt.question = tokenizer.tokenize("\n\n" + script.question, false, false);
  const std::vector<Token> begin_of_text = tokenizer.tokenize("", true, false);
  std::vector<Paragraph> paragraphs;
  auto taken = static_cast<std::int64_t>(prompt.question.size() + begin_of_text.size());
  for (const Insertion& insertion : script.insertions) {
    paragraphs.push_back(tokenised(tokenizer, insertion));
    taken += static_cast<std::int64_t>(paragraphs.back().tokens.size());
  }
  const std::int64_t room = trial.length - taken;
  const std::int64_t least = 4 * std::int64_t{page_size};
  if (room < least) {
    throw InvalidArgument("a pass key prompt of " + std::to_string(trial.length) +
                          " tokens leaves no room for filler; use at least " +
                          std::to_string(taken + least));
  }

  std::vector<std::int64_t> starts;
  std::vector<Token> filler = haystack.take(sentence, room, starts);
  std::vector<std::int64_t> cuts;
  for (const Paragraph& paragraph : paragraphs) {
    const auto wanted = std::llround(paragraph.depth * static_cast<double>(room));
    cuts.push_back(sentence_start_near(starts, wanted, room - page_size));
  }
  assemble(begin_of_text, filler, paragraphs, cuts, prompt);
  // Filler moves the key to its slot: the text begins that many tokens before a sentence does, and
  // ends that much earlier.
  const std::int64_t slot = prompt.evidence.front().front().begin % page_size;
  const std::int64_t shift = (wanted_slot(trial.place, page_size) - slot + page_size) % page_size;
  std::rotate(filler.begin(), filler.end() - shift, filler.end());
  for (std::int64_t& cut : cuts) cut += shift;
  assemble(begin_of_text, filler, paragraphs, cuts, prompt);
  return prompt;
}

}  // namespace quest::eval
