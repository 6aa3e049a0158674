// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quest {

/// What is proven about the pages that a sparse row reads (SPEC S4.6, S4.7).
enum class CertificateKind {
  kNone,
  kTopR,  ///< no key outside the list has a logit that reaches the row's R-th best
  kMass,  ///< the keys outside the list hold at most `epsilon` of the attention mass
};

/// A guarantee asked for. It is given for every (row, layer, query head) that selects: the list of
/// a KV head grows until all its query heads are certified, or until it holds every page.
///
/// The list starts as kPerHead selects it: forced pages, then for each query head its best pages by
/// the bound up to the budget. It then grows in batches: each head that is not certified adds its
/// best unread pages, a quarter of the list's length, at least one; for kTopR only those whose
/// bound reaches the R-th best logit so far.
struct Certificate {
  CertificateKind kind = CertificateKind::kNone;
  std::int64_t r = 1;    ///< of kTopR, ≥ 1
  double epsilon = 0.1;  ///< of kMass, within (0, 1)

  bool wanted() const { return kind != CertificateKind::kNone; }
};

/// "none", "top-r=16", "mass=0.01".
std::string to_string(const Certificate& certificate);
/// From "top-r=N" or "mass=EPS"; nothing for any other text and for numbers out of range.
std::optional<Certificate> parse_certificate(std::string_view text);

/// Throws InvalidArgument naming the field: r below 1, epsilon outside (0, 1).
void validate(const Certificate& certificate);

}  // namespace quest
