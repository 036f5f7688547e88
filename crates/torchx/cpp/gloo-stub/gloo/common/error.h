// Stand-ins for gloo's headers, which the wheel of LibTorch lacks: ProcessGroupGloo.hpp includes them, and of what they
// declare it needs no more than is here. Only pointers to these classes cross over, and gloo's own code makes them.
#pragma once
