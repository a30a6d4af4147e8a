package rawhttp

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"deeplink/shared/devservers"
)

// nginxConf is the configuration for deployments, from the root of the repository.
const nginxConf = "deploy/proxy/nginx.conf"

// root returns the root of the repository. Tests run in the folder of their package.
func root(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	for err == nil {
		if _, missing := os.Stat(filepath.Join(dir, "go.mod")); missing == nil {
			return dir
		}
		if filepath.Dir(dir) == dir {
			break
		}
		dir = filepath.Dir(dir)
	}
	t.Fatal("no go.mod above the folder of the test")
	return ""
}

// Nginx starts nginx with the configuration of deploy/proxy in front of one edge or one control, and returns its address. It ends with the
// test. upstream is the name of the server's group there, "edges" or "controls".
func Nginx(t *testing.T, upstream, addr string) string {
	t.Helper()
	program, err := exec.LookPath("nginx")
	if err != nil {
		if program, err = exec.LookPath("/usr/sbin/nginx"); err != nil {
			t.Fatalf("%v: deploy/local/install.sh nginx installs it", err)
		}
	}
	shipped, err := os.ReadFile(filepath.Join(root(t), nginxConf))
	if err != nil {
		t.Fatal(err)
	}
	dir, front, other := t.TempDir(), freeAddr(t), freeAddr(t)
	listens := map[string]string{"edges": front, "controls": other}
	if upstream == "controls" {
		listens = map[string]string{"edges": other, "controls": front}
	}
	conf := string(shipped)
	// Everything but addresses, files and users stays unchanged.
	for _, change := range []struct{ pattern, by string }{
		{`pid /tmp/nginx\.pid;`, "pid nginx.pid; daemon off; master_process off;"},
		{`error_log /dev/stderr`, "error_log error.log"},
		{`access_log /dev/stdout`, "access_log access.log"},
		{`worker_processes auto;`, "worker_processes 1;"},
		{`worker_connections \d+;`, "worker_connections 512;"},
		{`listen 8080 `, "listen " + listens["edges"] + " "},
		{`listen 8081 `, "listen " + listens["controls"] + " "},
		{`server 172\.31\.77\.[12]2:\d+ [^;]*;\n`, ""},
		{`server 172\.31\.77\.[12]1:\d+ [^;]*;`, "server " + addr + " max_fails=0;"},
		{`proxy_cache off;`, "proxy_cache off; lingering_timeout 100ms; client_body_temp_path t; proxy_temp_path t; fastcgi_temp_path t; uwsgi_temp_path t; scgi_temp_path t;"},
	} {
		changed := regexp.MustCompile(change.pattern).ReplaceAllLiteralString(conf, change.by)
		if changed == conf {
			t.Fatalf("%s: nothing matches %s", nginxConf, change.pattern)
		}
		conf = changed
	}
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	var output strings.Builder
	cmd := exec.Command(program, "-p", dir, "-c", file, "-e", filepath.Join(dir, "error.log"))
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(dir, "error.log"))
			t.Logf("nginx said:\n%.4000s\n%.4000s", &output, log)
		}
	})
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		c, err := net.Dial("tcp", front)
		if err == nil {
			_ = c.Close()
			return front
		}
		if time.Now().After(end) {
			t.Fatalf("nginx does not listen: %v", err)
		}
	}
}

func freeAddr(t *testing.T) string {
	t.Helper()
	addr, err := devservers.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}
