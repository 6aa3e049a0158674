// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// libFuzzer target: any bytes either pass the GGUF check or end in one of its own errors.
#include <cstddef>
#include <cstdint>
#include <span>

#include "model/gguf_check.h"
#include "quest/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    quest::check_gguf_bytes(std::as_bytes(std::span(data, size)), "input");
  } catch (const quest::Error&) {
    // A refusal is a right answer.
  }
  return 0;
}
