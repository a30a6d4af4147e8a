// Package testredis gives a test a Redis server of its own, which it may pause, kill and start again.
package testredis

import (
	"testing"
	"time"

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

// NewSentinels starts a Redis, its replica and three Sentinels, which end with the test. What is silent for a second is down.
func NewSentinels(t testing.TB) *daemon.Sentinels {
	t.Helper()
	s, err := daemon.StartSentinels(t.Context(), t.TempDir(), time.Second)
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

// NewCluster starts a Redis Cluster of three, which ends with the test.
func NewCluster(t testing.TB) *daemon.RedisCluster {
	t.Helper()
	c, err := daemon.StartRedisCluster(t.Context(), t.TempDir())
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
