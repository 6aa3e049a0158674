// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>

#include "cache/append.h"
#include "cache/kv_access.h"

namespace quest {
namespace {

using namespace quest::testing;

/// Address space without memory behind it: only the pages that a test touches exist.
class SparseMapping {
 public:
  explicit SparseMapping(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes)) {
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  ~SparseMapping() {
    if (valid()) munmap(data_, bytes_);
  }
  SparseMapping(const SparseMapping&) = delete;
  SparseMapping& operator=(const SparseMapping&) = delete;
  bool valid() const { return data_ != MAP_FAILED; }
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  std::size_t bytes_;
  void* data_;
};

TEST(LargePool, PageBeyondFourBillionElementsIsTheRightPage) {
  CacheShape shape;
  shape.num_layers = 1;
  shape.num_kv_heads = 8;
  shape.head_dim = 256;
  shape.page_size = 64;
  const std::int64_t page_elements = shape.page_elements() * shape.num_kv_heads;
  shape.num_pages = (std::int64_t{1} << 32) / page_elements + 1000;
  ASSERT_GT(shape.num_pages * page_elements, std::int64_t{1} << 32);

  const std::int64_t heads = shape.num_pages * shape.num_kv_heads;
  const SparseMapping k(heads * shape.page_bytes());
  const SparseMapping v(heads * shape.page_bytes());
  const SparseMapping summaries(heads * shape.summary_bytes());
  if (!k.valid() || !v.valid() || !summaries.valid()) {
    GTEST_SKIP() << "the system grants no sparse mapping of " << 2 * heads * shape.page_bytes()
                 << " bytes";
  }
  const PagedKv kv{k.data(), v.data(), summaries.data(), shape};

  // Where a 32-bit element offset of `far` would wrap to.
  const auto far = static_cast<std::int32_t>(shape.num_pages - 3);
  const auto wrapped = static_cast<std::int32_t>(far - (std::int64_t{1} << 32) / page_elements);
  const std::array<std::int32_t, 2> table{far, far + 1};
  const Rows rows(70, 256, 3);
  store_tokens(kv, 7, table, 0, 70, rows.k.data(), 256, rows.v.data(), 256);
  fold_tokens(kv, 7, table, 0, 70);
  copy_page(kv, far, far + 2);

  for (std::int64_t j = 0; j < 256; ++j) {
    const auto at = [&](std::int64_t token) { return static_cast<std::size_t>(token * 256 + j); };
    EXPECT_EQ(key_at(kv, far, 7, 63, j), rounded(shape.type, rows.k[at(63)]));
    EXPECT_EQ(value_at(kv, far + 1, 7, 5, j), rounded(shape.type, rows.v[at(69)]));
    EXPECT_EQ(key_at(kv, far + 2, 7, 63, j), rounded(shape.type, rows.k[at(63)]));
    Extremes extremes;
    for (std::int64_t t = 0; t < 64; ++t) extremes.add(rounded(shape.type, rows.k[at(t)]));
    EXPECT_EQ(minimum_at(kv, far, 7, j), extremes.low);
    EXPECT_EQ(maximum_at(kv, far + 2, 7, j), extremes.high);
    EXPECT_EQ(key_at(kv, wrapped, 7, 63, j), 0) << "another page was written";
    EXPECT_EQ(minimum_at(kv, wrapped, 7, j), 0) << "another summary was written";
  }
}

}  // namespace
}  // namespace quest
