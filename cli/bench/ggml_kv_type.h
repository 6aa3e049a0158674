// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ggml.h>

#include <string_view>

#include "quest/error.h"
#include "quest/kv_type.h"

namespace quest::cli {

/// ggml's type of the same name. Throws InvalidArgument if it has none.
inline ggml_type ggml_type_of(KvType type) {
  for (int i = 0; i < GGML_TYPE_COUNT; ++i) {
    const auto candidate = static_cast<ggml_type>(i);
    const char* const name = ggml_type_name(candidate);
    if (name != nullptr && name_of(type) == std::string_view(name)) return candidate;
  }
  throw InvalidArgument("llama.cpp has no cache of type " + std::string(name_of(type)) +
                        "; try --peer none");
}

}  // namespace quest::cli
