// What both halves share: no C++ exception may cross into Rust, so each call hands back its message instead.
#pragma once

#include <c10/util/Exception.h>

#include <cstring>
#include <exception>

// Runs `body`; null when it went well, else the message, malloc'ed: the caller frees it.
template <class Body>
char* guarded(Body&& body) noexcept {
  try {
    body();
    return nullptr;
  } catch (const c10::Error& error) {
    return strdup(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return strdup(error.what());
  } catch (...) {
    return strdup("an exception of unknown type");
  }
}
