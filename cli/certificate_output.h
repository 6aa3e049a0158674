// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "json_output.h"

namespace quest::cli {

/// What a certificate cost and reached, or null if none was wanted: kind, requested, rows (searches
/// of one token, layer and KV head each), fallback_share, pages_mean, pages_p95, pages_max,
/// pages_share (of what full attention reads in these rows), epsilon_mean, epsilon_max.
Json certificate_fields(const Certificate& wanted, const CertificateCounters& counters);

/// The same in one line for people; empty if no certificate was wanted.
std::string certificate_line(const Certificate& wanted, const CertificateCounters& counters);

// Counters on their way through a resume file.
Json pack_certificates(const CertificateCounters& counters);
CertificateCounters unpack_certificates(const Json& json);

}  // namespace quest::cli
