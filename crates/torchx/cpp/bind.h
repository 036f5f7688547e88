// Functions of libraries that are reached by name, because no header or link is at hand for them.
#pragma once

#include <c10/util/Exception.h>

#include <dlfcn.h>

template <class Function>
void bind(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(handle, name));
  TORCH_CHECK(function, name, " is missing: ", dlerror());
}
