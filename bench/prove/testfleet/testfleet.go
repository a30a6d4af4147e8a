// Package testfleet gives tests a fleet of real processes.
package testfleet

import (
	"bytes"
	"context"
	"testing"

	"deeplink/bench/prove/fleet"
)

// Start launches a fleet that is stopped when the test ends. Its logs are shown if the test fails.
func Start(t *testing.T, controls, edges int, edgeSettings ...string) *fleet.Fleet {
	t.Helper()
	var log bytes.Buffer
	f, err := fleet.Launch(t.Context(), controls, edges, &log, edgeSettings...)
	if err != nil {
		t.Fatal(err, log.String())
	}
	t.Cleanup(func() {
		if err := f.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return f
}
