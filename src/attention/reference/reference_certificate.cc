// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "attention/reference/reference_certificate.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <set>

namespace quest::reference {

namespace {

using Pages = std::set<std::int32_t>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Free pages of one head, the greatest bound first, of equal ones the lower page.
std::vector<std::int32_t> by_falling_bound(const std::vector<double>& bounds, const Pages& forced) {
  std::vector<std::int32_t> order;
  for (std::int32_t p = 0; p < static_cast<std::int32_t>(bounds.size()); ++p) {
    if (!forced.contains(p)) order.push_back(p);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return bounds[static_cast<std::size_t>(a)] > bounds[static_cast<std::size_t>(b)];
  });
  return order;
}

/// The r-th greatest logit of the pages; -inf if they hold fewer.
double rth_greatest(const std::vector<std::vector<double>>& logits, const Pages& pages,
                    std::int64_t r) {
  std::vector<double> all;
  for (const std::int32_t p : pages) {
    const auto& page = logits[static_cast<std::size_t>(p)];
    all.insert(all.end(), page.begin(), page.end());
  }
  if (static_cast<std::int64_t>(all.size()) < r) return -kInfinity;
  std::sort(all.begin(), all.end(), std::greater<>());
  return all[static_cast<std::size_t>(r - 1)];
}

/// Z̄ / (Z_C + Z̄) of one head.
double unread_mass(const CertificateCase& given, std::size_t head, const Pages& pages) {
  const auto& bounds = given.bounds[head];
  const double greatest = *std::max_element(bounds.begin(), bounds.end());
  double read = 0;
  double unread = 0;
  for (std::size_t p = 0; p < bounds.size(); ++p) {
    const auto& logits = given.logits[head][p];
    if (pages.contains(static_cast<std::int32_t>(p))) {
      for (const double x : logits) read += std::exp(given.scale * (x - greatest));
    } else {
      unread += static_cast<double>(logits.size()) * std::exp(given.scale * (bounds[p] - greatest));
    }
  }
  return unread / (read + unread);
}

class Search {
 public:
  Search(const Certificate& certificate, const CertificateCase& given)
      : certificate_(certificate), given_(given), pages_(given.forced.begin(), given.forced.end()) {
    const Pages forced = pages_;
    const auto free = static_cast<std::size_t>(given.page_budget) - forced.size();
    for (const auto& bounds : given.bounds) {
      order_.push_back(by_falling_bound(bounds, forced));
      pages_.insert(order_.back().begin(),
                    order_.back().begin() + static_cast<std::ptrdiff_t>(free));
    }
  }

  CertifiedList run() {
    std::int64_t probed = 0;
    while (!everything()) {
      probed = static_cast<std::int64_t>(pages_.size());
      std::vector<std::size_t> open;
      double epsilon = 0;
      for (std::size_t h = 0; h < order_.size(); ++h) {
        if (certificate_.kind == CertificateKind::kMass) {
          const double mass = unread_mass(given_, h, pages_);
          epsilon = std::max(epsilon, mass);
          if (mass > certificate_.epsilon) open.push_back(h);
        } else if (next_worth_reading(h, tau(h)) >= 0) {
          open.push_back(h);
        }
      }
      if (open.empty()) return {{pages_.begin(), pages_.end()}, probed, epsilon};
      const std::size_t batch = std::max<std::size_t>(1, pages_.size() / 4);
      const Pages seen = pages_;
      for (const std::size_t h : open) {
        const double least = certificate_.kind == CertificateKind::kMass
                                 ? -kInfinity
                                 : rth_greatest(given_.logits[h], seen, certificate_.r);
        for (std::size_t i = 0; i < batch; ++i) {
          const std::int32_t page = next_worth_reading(h, least);
          if (page < 0) break;
          pages_.insert(page);
        }
      }
    }
    CertifiedList all;
    all.pages.resize(given_.bounds[0].size());
    std::iota(all.pages.begin(), all.pages.end(), 0);
    all.probed = probed;
    return all;
  }

 private:
  bool everything() const { return pages_.size() == given_.bounds[0].size(); }
  double tau(std::size_t head) const {
    return rth_greatest(given_.logits[head], pages_, certificate_.r);
  }
  /// The head's best unread page if its bound is at least this; else -1.
  std::int32_t next_worth_reading(std::size_t head, double least) const {
    for (const std::int32_t p : order_[head]) {
      if (pages_.contains(p)) continue;
      return given_.bounds[head][static_cast<std::size_t>(p)] >= least ? p : -1;
    }
    return -1;
  }

  const Certificate& certificate_;
  const CertificateCase& given_;
  Pages pages_;
  std::vector<std::vector<std::int32_t>> order_;
};

}  // namespace

CertifiedList certify(const Certificate& certificate, const CertificateCase& given) {
  return Search(certificate, given).run();
}

}  // namespace quest::reference
