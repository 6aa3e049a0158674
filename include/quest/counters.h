// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "quest/certificate_counters.h"

namespace quest {

/// Seconds by stage of the attention operator, as seen by the first thread, waits included.
struct StageSeconds {
  double append = 0;
  double summarise = 0;
  double score = 0;
  double select = 0;
  double attend = 0;
  double total() const { return append + summarise + score + select + attend; }
};

/// What attention really did, summed over layers and steps (SPEC S8). Bytes are whole pages: a
/// partly filled tail page counts as one page, and each page is counted once for all the query
/// heads that share it. Only where a policy leaves light values out (`value_threshold`) values are
/// counted one by one. A dense prefill of many rows counts its pages once a row, as decode would.
/// Certificates read the keys of a page first to learn its logits and then again to attend: both
/// readings are counted, although the second may come from the processor's cache.
struct AttentionCounters {
  std::int64_t k_bytes = 0;        ///< key pages read
  std::int64_t v_bytes = 0;        ///< value pages, or single values, read
  std::int64_t summary_bytes = 0;  ///< summaries read by the score stage
  std::int64_t probe_bytes = 0;    ///< key pages read to certify, before they are attended to
  std::int64_t dense_bytes = 0;    ///< K and V bytes that full attention would have read
  std::int64_t pages_read = 0;     ///< pages summed over (row, layer, KV head)
  std::int64_t sparse_lists = 0;   ///< (row, layer, KV head) triples that left pages out
  std::int64_t dense_lists = 0;    ///< triples that read every page: dense layers, budget ≥ pages
  StageSeconds seconds;
  CertificateCounters certificates;  ///< of policies that ask for one

  std::int64_t bytes_read() const { return k_bytes + v_bytes + summary_bytes + probe_bytes; }
  AttentionCounters& operator+=(const AttentionCounters& other);
};

}  // namespace quest
