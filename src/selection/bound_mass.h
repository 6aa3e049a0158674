// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

namespace quest {

/// Bound on the attention mass of the pages that one query head has not read (SPEC S4.7), while it
/// reads more of them:
///   ε ≤ Z̄ / (Z_C + Z̄),  Z_C = Σ_{t read} exp(x_t),  Z̄ = Σ_{p unread} S · exp(U_p),
/// x_t the scaled logits and U_p the scaled bounds. Z_C is bounded from below and Z̄ from above,
/// rounding included: by the margin of rounding_margin.h in the exponents, and by factors for what
/// remains (exponentials, sums). Exponentials are relative to the greatest bound, so none
/// overflows; where one underflows the bound only grows.
class BoundMass {
 public:
  /// bounds: q·k, not scaled, [num_pages], as computed, finite. weights: scratch, [num_pages], kept
  /// until the last call. Unread pages must be full, of page_size tokens.
  void start(std::span<const float> bounds, std::int32_t page_size, float scale, double margin,
             std::span<double> weights);

  /// A page is read from now on.
  void leave_out(std::int32_t page) { weights_[static_cast<std::size_t>(page)] = 0; }
  /// Adds keys that were read: their greatest q·k, and Σ exp(scale · (q·k - greatest)), at most
  /// `kMostKeys` at a time, in float32.
  void add_read(float greatest, float sum);
  /// The bound for the pages that were not left out; 1 where nothing is known.
  double epsilon() const;

  static constexpr std::int32_t kMostKeys = 256;

 private:
  std::span<double> weights_;  ///< exp(scale · (bound - reference_)) of unread pages, else 0
  double reference_ = 0;       ///< greatest bound, not scaled
  double scale_ = 1;
  double factor_ = 1;  ///< from Σ weights to Z̄ over the lower end of Z_C, but for its own sum
  double read_ = 0;    ///< Σ over what was read, relative to the reference
};

}  // namespace quest
