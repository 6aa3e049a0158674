// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "quest/eval/arm.h"
#include "quest/eval/perplexity.h"

namespace quest::eval {

/// How near the sparse path stays to full attention inside the model (SPEC S9.3). The serving code
/// runs; beside it every layer's full attention is computed for the same query over the same cache.
struct FidelityPlan {
  PerplexityPlan text;    ///< `rows` is not used: one token a step
  std::int32_t top = 32;  ///< R of the page recall: tokens with the largest logits
};

/// Slack of pages in steps of half a (scaled) logit; the last bin holds everything above.
inline constexpr std::size_t kSlackBins = 64;
inline constexpr double kSlackStep = 0.5;

/// One query head of one layer: sums over tokens; divide by `tokens`, slack by `slack_pages`.
struct HeadFidelity {
  std::int64_t tokens = 0;
  double page_share = 0;   ///< pages read of all pages, of the head's KV head
  double page_recall = 0;  ///< pages of the top R tokens that were read, of all such pages
  double mass = 0;         ///< attention mass of full attention on the pages read
  double cosine = 0;       ///< of the attention output and that of full attention
  double relative_l2 = 0;  ///< length of their difference by the length of the latter
  /// Pages whose score is above that of the page with the largest logit, by this head's own score
  /// with the policy's beta: what must be read before the best page (SPEC S3.3).
  double regret = 0;
  double slack = 0;  ///< bound minus largest logit (S3.3), over all pages but the token's own
  std::int64_t slack_pages = 0;
  std::array<std::int64_t, kSlackBins> slack_bins{};

  HeadFidelity& operator+=(const HeadFidelity& other);
  /// Slack that this share of the pages stays below, to the upper end of its bin.
  double slack_quantile(double share) const;
};

/// One way of feeding tokens, over one window or many.
struct FidelityRun {
  std::int32_t num_layers = 0;
  std::int32_t num_q_heads = 0;
  std::vector<HeadFidelity> heads;  ///< [num_layers, num_q_heads]
  /// [num_layers] sums over tokens of |A ∩ B| / |A ∪ B|, A and B the pages that any KV head of the
  /// layer and of the one before read; layers next to one that reads everything have no tokens.
  std::vector<double> jaccard;
  std::vector<std::int64_t> jaccard_tokens;
  std::vector<double> kl;            ///< a token, KL(full ‖ sparse) of the final logits
  std::vector<std::uint8_t> agrees;  ///< a token, 1: same likeliest next token
  /// A window: tokens written before full attention would have written another, or all of them.
  std::vector<std::int64_t> same_tokens;
  ArmCost cost;

  const HeadFidelity& head(std::int32_t layer, std::int32_t q_head) const {
    return heads[static_cast<std::size_t>(layer) * num_q_heads + q_head];
  }
  /// Of the same model.
  FidelityRun& operator+=(const FidelityRun& other);
};

struct FidelityWindow {
  FidelityRun teacher_forced;  ///< the text's tokens
  FidelityRun free_running;    ///< the arm's own greedy tokens after the same context
};

class AttentionProbe;

/// An engine with a probe on its attention.
class Fidelity {
 public:
  Fidelity(std::shared_ptr<const Model> model, EngineOptions options);
  ~Fidelity();

  Engine& engine();
  /// As `run_window` of the perplexity.
  std::optional<FidelityWindow> run(const FidelityPlan& plan, std::span<const Token> window,
                                    const Arm& arm, const Progress& progress = {});

  static std::int64_t cache_tokens(const FidelityPlan& plan, std::int32_t page_size);

 private:
  FidelityRun force(const Session& context, const Arm& arm, std::span<const Token> tokens,
                    bool free, std::int32_t top, const std::function<bool()>& go_on);

  std::unique_ptr<AttentionProbe> probe_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace quest::eval
