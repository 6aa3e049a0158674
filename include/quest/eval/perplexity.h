// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "quest/eval/arm.h"
#include "quest/eval/statistics.h"

namespace quest::eval {

/// Perplexity of a text's tokens after a context (SPEC S9.1, S9.2). Each window of the text has
/// its context read once with full attention; its last tokens are then forced through every arm on
/// a fork of its own, each token with pages of its own.
struct PerplexityPlan {
  std::int64_t context = 3600;  ///< tokens of a window read with full attention
  std::int64_t tokens = 256;    ///< then forced; each predicts the one after it
  std::int64_t rows = 32;       ///< tokens of one step of the engine

  /// Tokens of text that a window takes: the last forced token predicts one more.
  std::int64_t window_tokens() const { return context + tokens + 1; }
};

/// Throws InvalidArgument naming the field unless all are at least 1.
void validate(const PerplexityPlan& plan);
/// The same, and throws InvalidArgument with both numbers for a window that is not as long as the
/// plan's.
void validate(const PerplexityPlan& plan, std::span<const Token> window);

/// First tokens of `windows` windows in a text, spread evenly so that no token is predicted twice.
/// Throws InvalidArgument, with the tokens that are there and those that are needed, if they do
/// not fit.
std::vector<std::int64_t> window_starts(std::int64_t text_tokens, std::int64_t window_tokens,
                                        std::int64_t predicted_tokens, std::int64_t windows);

/// What one arm made of one window.
struct ArmTokens {
  std::vector<double> nll;           ///< [tokens], -log of the text's next token, nats
  std::vector<double> kl;            ///< [tokens], KL(full ‖ arm) of the next token, nats
  std::vector<std::uint8_t> agrees;  ///< [tokens], 1: full attention's likeliest token is the arm's
  ArmCost cost;
};

struct PerplexityWindow {
  std::vector<double> full_nll;  ///< [tokens]
  ArmCost full;
  std::vector<ArmTokens> arms;  ///< as the arms were given
};

/// Runs one window: `window_tokens` tokens, begin-of-text included where the model wants it.
/// Nothing if `progress`, called with tokens of the window done, stopped it. The engine needs
/// `perplexity_cache_tokens` of context free; its policy is as before afterwards. Throws
/// InvalidArgument for a window of another length.
std::optional<PerplexityWindow> run_window(Engine& engine, const PerplexityPlan& plan,
                                           std::span<const Token> window, std::span<const Arm> arms,
                                           const Progress& progress = {});

std::int64_t perplexity_cache_tokens(const PerplexityPlan& plan, std::int64_t arms,
                                     std::int32_t page_size);

/// Tokens [first, last) of every window together, `first` counted from the window's beginning.
struct PositionBucket {
  std::int64_t first = 0;
  std::int64_t last = 0;
  double perplexity_full = 0;
  double perplexity = 0;
};

/// One arm over all windows.
struct PerplexitySummary {
  std::int64_t tokens = 0;
  double perplexity_full = 0;
  double perplexity = 0;
  double relative_increase = 0;      ///< perplexity / perplexity_full - 1
  std::optional<Interval> interval;  ///< 95 % of the mean of nll - full nll, paired by token
  double kl = 0;                     ///< mean
  double agreement = 0;              ///< share of tokens
  std::vector<PositionBucket> positions;
  ArmCost cost;
  ArmCost full;
};

/// Dependence between neighbouring tokens is taken to end within this many.
inline constexpr std::int64_t kIndependentTokens = 16;

PerplexitySummary summarise(std::span<const PerplexityWindow> windows, std::size_t arm,
                            const PerplexityPlan& plan, std::int64_t buckets);

}  // namespace quest::eval
