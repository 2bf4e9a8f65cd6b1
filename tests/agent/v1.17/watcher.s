// This file lets watcher.go and pools.go declare functions without a body.
