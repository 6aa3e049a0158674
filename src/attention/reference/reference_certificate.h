// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "quest/certificate.h"

namespace quest::reference {

/// Certificates written a second time, to be read rather than to be fast: the oracle of
/// certificate_search.h, with which they share no code. Everything is float64, without margins.

/// One row and KV head, all of it known beforehand.
struct CertificateCase {
  std::vector<std::vector<double>> bounds;               ///< [group][P], q·k ≤ U
  std::vector<std::vector<std::vector<double>>> logits;  ///< [group][P][tokens], q·k
  std::vector<std::int32_t> forced;                      ///< pages, the tail page among them
  std::int64_t page_budget = 1;                          ///< < P
  double scale = 1;                                      ///< turns q·k into a logit
};

struct CertifiedList {
  std::vector<std::int32_t> pages;  ///< ascending
  std::int64_t probed = 0;          ///< pages whose logits were looked at
  double epsilon = 0;               ///< of kMass: the worst head's bound; 0 with every page read
};

/// The list that `Certificate` describes.
CertifiedList certify(const Certificate& certificate, const CertificateCase& given);

}  // namespace quest::reference
