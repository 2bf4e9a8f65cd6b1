// This file lets watcher.go declare a function without a body.
