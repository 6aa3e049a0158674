// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quest/eval/answer.h"
#include "quest/tokenizer.h"

namespace quest::eval {

/// What stands in the material beside the sentence that is asked for (SPEC S9.2).
enum class PasskeyVariant {
  kPlain,        ///< nothing
  kDistractors,  ///< other numbers that differ in one or two digits
  kReversal,     ///< another person's key, discussed at length, late in the material
  kEvidence,     ///< two keys at two depths, both are asked for
};

/// "plain", "distractors", "reversal", "evidence".
std::string_view name_of(PasskeyVariant variant);
std::optional<PasskeyVariant> parse_passkey_variant(std::string_view text);

/// Where in its page the key's first digit lies: first slot, middle slot, or last slot, so that the
/// key goes on in the next page.
enum class PagePlace { kStart, kMiddle, kEnd };

/// "start", "middle", "end".
std::string_view name_of(PagePlace place);
std::optional<PagePlace> parse_page_place(std::string_view text);

/// One question. Equal trials make equal prompts on every machine.
struct PasskeyTrial {
  std::int64_t length = 0;  ///< tokens of material and question together
  double depth = 0;         ///< 0: beginning of the material, 1: its end
  PagePlace place = PagePlace::kStart;
  PasskeyVariant variant = PasskeyVariant::kPlain;
  std::uint64_t seed = 0;  ///< chooses the keys and where the filler begins
};

/// Filler text, tokenised once, sentence by sentence.
class Haystack {
 public:
  /// Throws InvalidArgument if the text has no token.
  Haystack(const Tokenizer& tokenizer, std::string_view text);

  /// `count` tokens from the start of sentence `sentence` (modulo their number) on, over and over.
  /// `starts` receives the indices of the tokens that begin a sentence.
  std::vector<Token> take(std::uint64_t sentence, std::int64_t count,
                          std::vector<std::int64_t>& starts) const;
  std::int64_t num_sentences() const { return static_cast<std::int64_t>(sentences_.size()); }

 private:
  std::vector<std::vector<Token>> sentences_;
};

struct PasskeyPrompt {
  std::vector<Token> material;
  std::vector<Token> question;
  std::vector<std::string> keys;   ///< asked for, in the order of the question
  std::vector<Evidence> evidence;  ///< of each key: the tokens that spell it, at every mention
};

/// Throws InvalidArgument if the length leaves no room for filler between the sentences.
PasskeyPrompt passkey_prompt(const Tokenizer& tokenizer, const Haystack& haystack,
                             const PasskeyTrial& trial, std::int32_t page_size);

enum class AnswerClass {
  kMiss,
  kHit,
  kTruncated,  ///< the token limit came before the numbers were complete
};

/// Runs of digits in the text, in order.
std::vector<std::string> numbers_in(std::string_view text);

/// A hit if the first numbers of the answer are the keys, in their order.
AnswerClass classify(const ArmAnswer& answer, std::span<const std::string> keys);

/// The answer is complete once all its numbers have ended.
AnswerRequest passkey_request(const PasskeyPrompt& prompt, std::int64_t max_tokens);

}  // namespace quest::eval
