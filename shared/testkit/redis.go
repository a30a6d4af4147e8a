package testkit

import (
	"testing"
	"time"

	"deeplink/shared/devservers"
)

// NewRedis starts an empty server that ends with the test.
func NewRedis(t testing.TB) *devservers.Redis {
	t.Helper()
	server, err := devservers.StartRedis(t.Context(), devservers.RedisOptions{Dir: t.TempDir()})
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

// NewSentinels starts a Redis, its replica and three Sentinels, which end with the test. A server counts as down after a second of silence.
func NewSentinels(t testing.TB) *devservers.Sentinels {
	t.Helper()
	s, err := devservers.StartSentinels(t.Context(), t.TempDir(), time.Second)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// NewRedisCluster starts a Redis Cluster of three, which ends with the test.
func NewRedisCluster(t testing.TB) *devservers.RedisCluster {
	t.Helper()
	c, err := devservers.StartRedisCluster(t.Context(), t.TempDir())
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
