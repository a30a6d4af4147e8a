package canary

import (
	"strings"
	"testing"

	"deeplink/control/internal/testenv"
	"deeplink/shared/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const testLinkBase = testenv.LinkBase

type logBuffer = testenv.LogBuffer

// testEnv is one test's database and Redis, and the canaries that use them.
type testEnv struct{ *testenv.Env }

func newTestEnv(t testing.TB) *testEnv { return &testEnv{testenv.New(t)} }

func await(t testing.TB, what string, check func() error) {
	t.Helper()
	testenv.Await(t, what, check)
}

func repeat(s string, n int) string { return strings.Repeat(s, n) }
