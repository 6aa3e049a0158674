// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/eval/passkey.h"

#include <algorithm>

namespace quest::eval {
namespace {

constexpr PasskeyVariant kVariants[] = {PasskeyVariant::kPlain, PasskeyVariant::kDistractors,
                                        PasskeyVariant::kReversal, PasskeyVariant::kEvidence};
constexpr PagePlace kPlaces[] = {PagePlace::kStart, PagePlace::kMiddle, PagePlace::kEnd};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::string_view name_of(PasskeyVariant variant) {
  switch (variant) {
    case PasskeyVariant::kPlain:
      return "plain";
    case PasskeyVariant::kDistractors:
      return "distractors";
    case PasskeyVariant::kReversal:
      return "reversal";
    case PasskeyVariant::kEvidence:
      return "evidence";
  }
  return "?";
}

std::optional<PasskeyVariant> parse_passkey_variant(std::string_view text) {
  for (const PasskeyVariant variant : kVariants) {
    if (text == name_of(variant)) return variant;
  }
  return std::nullopt;
}

std::string_view name_of(PagePlace place) {
  switch (place) {
    case PagePlace::kStart:
      return "start";
    case PagePlace::kMiddle:
      return "middle";
    case PagePlace::kEnd:
      return "end";
  }
  return "?";
}

std::optional<PagePlace> parse_page_place(std::string_view text) {
  for (const PagePlace place : kPlaces) {
    if (text == name_of(place)) return place;
  }
  return std::nullopt;
}

std::vector<std::string> numbers_in(std::string_view text) {
  std::vector<std::string> numbers;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!is_digit(text[i])) continue;
    if (i == 0 || !is_digit(text[i - 1])) numbers.emplace_back();
    numbers.back().push_back(text[i]);
  }
  return numbers;
}

AnswerClass classify(const ArmAnswer& answer, std::span<const std::string> keys) {
  const std::vector<std::string> numbers = numbers_in(answer.text);
  const std::size_t found = std::min(numbers.size(), keys.size());
  for (std::size_t i = 0; i < found; ++i) {
    if (numbers[i] == keys[i]) continue;
    const bool open = i + 1 == numbers.size() && is_digit(answer.text.back());
    // A number that the limit cut off may still have become the key; any other is wrong.
    return answer.cut() && open && keys[i].starts_with(numbers[i]) ? AnswerClass::kTruncated
                                                                   : AnswerClass::kMiss;
  }
  if (found == keys.size()) return AnswerClass::kHit;
  return answer.cut() ? AnswerClass::kTruncated : AnswerClass::kMiss;
}

AnswerRequest passkey_request(const PasskeyPrompt& prompt, std::int64_t max_tokens) {
  AnswerRequest request;
  request.material = prompt.material;
  request.question = prompt.question;
  request.max_tokens = max_tokens;
  request.evidence = prompt.evidence;
  request.complete = [wanted = prompt.keys.size()](std::string_view text) {
    const std::size_t ended = numbers_in(text).size() - (!text.empty() && is_digit(text.back()));
    return ended >= wanted;
  };
  return request;
}

}  // namespace quest::eval
