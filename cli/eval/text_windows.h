// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "json_output.h"
#include "quest/eval/perplexity.h"

namespace quest::cli {

/// A stretch of a text that is read as if it were a document.
struct TextWindow {
  std::string name;           ///< "FILE NUMBER/WINDOW NUMBER", for the resume file
  std::vector<Token> tokens;  ///< begin-of-text first where the model wants it
};

/// `count` windows of every file. `identity` receives the files' fingerprints. Throws FileError,
/// or InvalidArgument naming a file that is too short.
std::vector<TextWindow> text_windows(const Tokenizer& tokenizer,
                                     const std::vector<std::string>& files,
                                     const eval::PerplexityPlan& plan, std::int64_t count,
                                     Json& identity);

}  // namespace quest::cli
