// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "quest/batch.h"
#include "quest/kv_cache.h"

namespace quest {

/// What a backend that serves checks before a step: the batch is consistent (`validate`), the query
/// heads divide among the KV heads, and the rows' own tokens, which are about to be written, are
/// reserved in pages that the cache gave to their sequence alone. Throws InvalidArgument.
void check_step(const Batch& batch, const KvCache& cache, std::int32_t num_q_heads);

}  // namespace quest
