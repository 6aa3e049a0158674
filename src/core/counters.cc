// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/counters.h"

namespace quest {

AttentionCounters& AttentionCounters::operator+=(const AttentionCounters& other) {
  k_bytes += other.k_bytes;
  v_bytes += other.v_bytes;
  summary_bytes += other.summary_bytes;
  probe_bytes += other.probe_bytes;
  dense_bytes += other.dense_bytes;
  pages_read += other.pages_read;
  sparse_lists += other.sparse_lists;
  dense_lists += other.dense_lists;
  seconds.append += other.seconds.append;
  seconds.summarise += other.seconds.summarise;
  seconds.score += other.seconds.score;
  seconds.select += other.seconds.select;
  seconds.attend += other.seconds.attend;
  certificates += other.certificates;
  return *this;
}

}  // namespace quest
