// This file lets pools.go declare a function without a body.
