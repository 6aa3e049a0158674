// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "cache/page_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

#include "quest/error.h"

namespace quest {
namespace {

TEST(PageMemory, StartsAtAHugePageAndIsZeroToTheLastByte) {
  for (std::int64_t bytes : {std::int64_t{1}, std::int64_t{4097}, std::int64_t{5} << 20}) {
    const PageMemory memory(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % PageMemory::kAlignment, 0U);
    EXPECT_GE(memory.size(), bytes);
    EXPECT_EQ(memory.data()[0], std::byte{0});
    EXPECT_EQ(memory.data()[bytes - 1], std::byte{0});
    memory.data()[bytes - 1] = std::byte{7};
    EXPECT_EQ(memory.data()[bytes - 1], std::byte{7});
  }
}

TEST(PageMemory, RefusalNamesTheSize) {
  for (std::int64_t bytes : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{1} << 60,
                             std::numeric_limits<std::int64_t>::max()}) {
    try {
      const PageMemory memory(bytes);
      FAIL() << bytes << " bytes were granted";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(std::to_string(bytes)), std::string::npos)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace quest
