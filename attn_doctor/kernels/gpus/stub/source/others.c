/* Libraries that are refused: their first call, without which no other call is possible. */
#define _GNU_SOURCE
#include "stub_gpu.h"

#define REFUSED(name, code)        \
  STUB_API(int, name, void) {      \
    stub_refused(#name);           \
    return code;                   \
  }
enum { CUDNN = 3000, CUSOLVER = 9, CUSPARSE = 10, CUFFT = 16, CURAND = 203, NCCL = 5 };
REFUSED(cudnnCreate, CUDNN)
REFUSED(cusolverDnCreate, CUSOLVER)
REFUSED(cusolverSpCreate, CUSOLVER)
REFUSED(cusparseCreate, CUSPARSE)
REFUSED(cusparseLtInit, CUSPARSE)
REFUSED(cufftCreate, CUFFT)
REFUSED(cufftPlan1d, CUFFT)
REFUSED(cufftPlan2d, CUFFT)
REFUSED(cufftPlan3d, CUFFT)
REFUSED(cufftPlanMany, CUFFT)
REFUSED(curandCreateGenerator, CURAND)
REFUSED(ncclCommInitRank, NCCL)
REFUSED(ncclCommInitRankConfig, NCCL)
REFUSED(ncclCommInitRankScalable, NCCL)
REFUSED(ncclCommInitAll, NCCL)
