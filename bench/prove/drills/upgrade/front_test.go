package upgrade

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"deeplink/bench/prove/baseline"
	"deeplink/shared/testkit"
)

// The configuration derives from deploy/proxy/nginx.conf, which may change.
func TestFrontIsConfiguredWithTheGivenServers(t *testing.T) {
	testkit.Prove(t)
	t.Parallel()
	f, err := startFront(t.Context(), t.TempDir(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.write([]string{"127.0.0.1:1", "127.0.0.1:2"}, []string{"127.0.0.1:3"}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(f.config)
	if err != nil {
		t.Fatal(err)
	}
	for what, times := range map[string]int{
		"server 127.0.0.1:1 ": 1, "server 127.0.0.1:2 ": 1, "server 127.0.0.1:3 ": 1, "server 172.": 0,
		"listen " + f.clicks + " ": 1, "listen " + f.api + " ": 1, "listen 808": 0, "/tmp/nginx.pid": 0, "access_log off;": 1,
	} {
		if n := strings.Count(string(text), what); n != times {
			t.Errorf("%q occurs %d times, expected %d", what, n, times)
		}
	}
	path, err := baseline.Find("nginx")
	if err != nil {
		t.Skip(err)
	}
	if out, err := exec.CommandContext(t.Context(), path, "-t", "-c", f.config).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
