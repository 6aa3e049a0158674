// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "cli/stop_filter.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace quest::cli {
namespace {

struct Shown {
  std::vector<std::string> pieces;
  std::string text;
  bool stopped = false;
};

Shown filter(const StopRule& rule, const std::vector<std::string>& pieces) {
  StopFilter filter(rule);
  Shown shown;
  for (const std::string& piece : pieces) {
    shown.pieces.push_back(filter.push(piece));
    shown.text += shown.pieces.back();
  }
  shown.text += filter.finish();
  shown.stopped = filter.stopped();
  return shown;
}

TEST(StopFilter, PassesEverythingWithoutRule) {
  const Shown shown = filter({}, {"a\n", "b", ""});
  EXPECT_EQ(shown.text, "a\nb");
  EXPECT_FALSE(shown.stopped);
}

TEST(StopFilter, FindsStopTextSplitOverPieces) {
  const Shown shown = filter({{"END"}, false}, {"text E", "N", "D more"});
  EXPECT_EQ(shown.pieces[0], "text ");
  EXPECT_EQ(shown.text, "text ");
  EXPECT_TRUE(shown.stopped);
}

TEST(StopFilter, GivesBackWhatOnlyLookedLikeAStopText) {
  EXPECT_EQ(filter({{"END"}, false}, {"EN", "TER"}).text, "ENTER");
  EXPECT_EQ(filter({{"END"}, false}, {"a E", "EN"}).text, "a EEN");
}

TEST(StopFilter, EarliestOfSeveralStopTextsWins) {
  EXPECT_EQ(filter({{"yy", "x"}, false}, {"axyy"}).text, "a");
  EXPECT_EQ(filter({{""}, false}, {"abc"}).text, "abc");
}

TEST(StopFilter, FirstLineIgnoresWhiteSpaceBeforeTheAnswer) {
  const Shown shown = filter({{}, true}, {"\n", "\n ", "42.", "\nNext"});
  EXPECT_EQ(shown.text, "\n\n 42.");
  EXPECT_TRUE(shown.stopped);
  EXPECT_EQ(filter({{}, true}, {" 42.\nNext"}).text, " 42.");
  EXPECT_FALSE(filter({{}, true}, {"\n\n"}).stopped);
}

}  // namespace
}  // namespace quest::cli
