// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace quest::testing {

/// Path of the model that the program uses when none is named, empty if it is not installed.
const std::string& packaged_model();

/// A text of about `sentences` filler sentences of varied words, in which a paragraph tells
/// the pass key at `depth` (0: beginning, 1: end). The question is not part of it.
std::string pass_key_text(const std::string& key, double depth, std::size_t sentences);

inline constexpr const char* kPassKeyQuestion = "What is the pass key? The pass key is";

/// Parses a program's standard output, which must be exactly one JSON object.
nlohmann::json parse_object(const std::string& text);

/// Tests that need the packaged model.
class PackagedModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (packaged_model().empty()) GTEST_SKIP() << "the packaged model is not installed";
  }
};

}  // namespace quest::testing
