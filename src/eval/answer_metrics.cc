// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/eval/answer_metrics.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "eval/unicode.h"

namespace quest::eval {
namespace {

using Word = std::u32string;
using Words = std::vector<Word>;

Words split_at_white_space(std::u32string_view text) {
  Words words;
  Word word;
  for (const char32_t c : text) {
    if (!is_white_space(c)) {
      word.push_back(c);
    } else if (!word.empty()) {
      words.push_back(std::exchange(word, {}));
    }
  }
  if (!word.empty()) words.push_back(std::move(word));
  return words;
}

bool is_ascii_punctuation(char32_t c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
         (c >= '{' && c <= '~');
}

/// Articles stand between characters that are no letters or digits, so that other punctuation than
/// ASCII sets them apart as well; each becomes a space.
std::u32string without_articles(const std::u32string& text) {
  std::u32string result;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i;
    while (end < text.size() && is_letter_or_digit(text[end])) ++end;
    if (end == i) {
      result.push_back(text[i++]);
      continue;
    }
    const std::u32string_view word(text.data() + i, end - i);
    result += word == U"a" || word == U"an" || word == U"the" ? U" " : word;
    i = end;
  }
  return result;
}

Words normalised_words(std::string_view text) {
  std::u32string plain;
  for (const char32_t c : decode_utf8(text)) {
    const char32_t lower = to_lower(c);
    if (!is_ascii_punctuation(lower)) plain.push_back(lower);
  }
  return split_at_white_space(without_articles(plain));
}

/// Sentences of words. A stretch of nothing but white space between full stops counts as a sentence
/// with one empty word, as it does in the package.
std::vector<Words> sentences_of(std::string_view text) {
  const std::u32string whole = decode_utf8(text);
  std::vector<Words> sentences;
  for (std::size_t begin = 0; begin <= whole.size();) {
    const std::size_t end = std::min(whole.find(U'.', begin), whole.size());
    if (end > begin) {
      Words words = split_at_white_space(std::u32string_view(whole).substr(begin, end - begin));
      if (words.empty()) words.emplace_back();
      sentences.push_back(std::move(words));
    }
    begin = end + 1;
  }
  return sentences;
}

/// Adds the words of one longest common subsequence to `common`. Which one, where there are
/// several, follows the package: from the ends backwards, dropping a word of `answer` unless only
/// dropping one of `truth` keeps the length.
void add_common_subsequence(const Words& truth, const Words& answer, std::set<Word>& common) {
  const std::size_t width = answer.size() + 1;
  std::vector<std::int32_t> length((truth.size() + 1) * width, 0);
  for (std::size_t i = 1; i <= truth.size(); ++i) {
    for (std::size_t j = 1; j < width; ++j) {
      length[i * width + j] = truth[i - 1] == answer[j - 1] ? length[(i - 1) * width + j - 1] + 1
                                                            : std::max(length[(i - 1) * width + j],
                                                                       length[i * width + j - 1]);
    }
  }
  std::size_t i = truth.size();
  std::size_t j = answer.size();
  while (i > 0 && j > 0) {
    if (truth[i - 1] == answer[j - 1]) {
      common.insert(truth[i - 1]);
      --i;
      --j;
    } else if (length[(i - 1) * width + j] > length[i * width + j - 1]) {
      --i;
    } else {
      --j;
    }
  }
}

std::size_t distinct_words(const std::vector<Words>& sentences) {
  std::set<Word> words;
  for (const Words& sentence : sentences) words.insert(sentence.begin(), sentence.end());
  return words.size();
}

}  // namespace

std::string_view name_of(AnswerMetric metric) {
  return metric == AnswerMetric::kQaF1 ? "qa_f1" : "rouge_l";
}

std::optional<AnswerMetric> parse_answer_metric(std::string_view text) {
  for (const AnswerMetric metric : {AnswerMetric::kQaF1, AnswerMetric::kRougeL}) {
    if (text == name_of(metric)) return metric;
  }
  return std::nullopt;
}

std::string normalised_answer(std::string_view text) {
  std::u32string result;
  for (const Word& word : normalised_words(text)) {
    if (!result.empty()) result.push_back(U' ');
    result += word;
  }
  return encode_utf8(result);
}

double qa_f1(std::string_view answer, std::string_view truth) {
  const Words given = normalised_words(answer);
  const Words wanted = normalised_words(truth);
  std::map<Word, std::int64_t> left;
  for (const Word& word : wanted) ++left[word];
  std::int64_t common = 0;
  for (const Word& word : given) {
    const auto found = left.find(word);
    if (found != left.end() && found->second-- > 0) ++common;
  }
  if (common == 0) return 0;
  const double precision = static_cast<double>(common) / static_cast<double>(given.size());
  const double recall = static_cast<double>(common) / static_cast<double>(wanted.size());
  return 2 * precision * recall / (precision + recall);
}

double rouge_l(std::string_view answer, std::string_view truth) {
  const std::vector<Words> given = sentences_of(answer);
  const std::vector<Words> wanted = sentences_of(truth);
  if (given.empty() || wanted.empty()) return 0;
  std::set<Word> common;
  for (const Words& reference : wanted) {
    for (const Words& sentence : given) add_common_subsequence(reference, sentence, common);
  }
  const auto overlap = static_cast<double>(common.size());
  const double precision = overlap / static_cast<double>(distinct_words(given));
  const double recall = overlap / static_cast<double>(distinct_words(wanted));
  constexpr double kAgainstZero = 1e-8;
  return 2 * (precision * recall / (precision + recall + kAgainstZero));
}

double answer_score(AnswerMetric metric, std::string_view answer,
                    std::span<const std::string> truths) {
  double best = 0;
  for (const std::string& truth : truths) {
    best = std::max(best,
                    metric == AnswerMetric::kQaF1 ? qa_f1(answer, truth) : rouge_l(answer, truth));
  }
  return best;
}

}  // namespace quest::eval
