// Package testredis gives a test a Redis server of its own, which it may pause, kill and start again.
package testredis

import (
	"testing"

	"deeplink/shared/daemon"
)

// New starts an empty server that ends with the test.
func New(t testing.TB) *daemon.Redis {
	t.Helper()
	server, err := daemon.StartRedis(t.Context(), daemon.RedisOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Kill(); err != nil {
			t.Error(err)
		}
	})
	return server
}
