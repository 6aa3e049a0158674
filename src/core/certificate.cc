// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/certificate.h"

#include <charconv>
#include <sstream>

#include "quest/error.h"

namespace quest {

namespace {

constexpr std::string_view kTopRPrefix = "top-r=";
constexpr std::string_view kMassPrefix = "mass=";

bool in_range(const Certificate& certificate) {
  switch (certificate.kind) {
    case CertificateKind::kNone:
      return true;
    case CertificateKind::kTopR:
      return certificate.r >= 1;
    case CertificateKind::kMass:
      return certificate.epsilon > 0 && certificate.epsilon < 1;
  }
  return false;
}

/// Reads the whole text as one number.
template <class Number>
bool read_number(std::string_view text, Number& number) {
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && at == end;
}

}  // namespace

std::string to_string(const Certificate& certificate) {
  std::ostringstream text;
  switch (certificate.kind) {
    case CertificateKind::kNone:
      text << "none";
      break;
    case CertificateKind::kTopR:
      text << kTopRPrefix << certificate.r;
      break;
    case CertificateKind::kMass:
      text << kMassPrefix << certificate.epsilon;
      break;
  }
  return text.str();
}

std::optional<Certificate> parse_certificate(std::string_view text) {
  Certificate certificate;
  bool number = false;
  if (text.starts_with(kTopRPrefix)) {
    certificate.kind = CertificateKind::kTopR;
    number = read_number(text.substr(kTopRPrefix.size()), certificate.r);
  } else if (text.starts_with(kMassPrefix)) {
    certificate.kind = CertificateKind::kMass;
    number = read_number(text.substr(kMassPrefix.size()), certificate.epsilon);
  }
  if (!number || !in_range(certificate)) return std::nullopt;
  return certificate;
}

void validate(const Certificate& certificate) {
  if (in_range(certificate)) return;
  std::ostringstream text;
  if (certificate.kind == CertificateKind::kTopR) {
    text << "certificate r " << certificate.r << " is below 1; give at least 1";
  } else {
    text << "certificate epsilon " << certificate.epsilon
         << " is outside (0, 1); give a share of the attention mass";
  }
  throw InvalidArgument(text.str());
}

}  // namespace quest
