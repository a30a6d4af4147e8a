package deploy

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"deeplink/deploy/stack"
	"deeplink/shared/devservers"
)

// TestRestoreOnAFreshMachine runs the commands of README.md as PostgreSQL's user would type them.
func TestRestoreOnAFreshMachine(t *testing.T) {
	t.Parallel()
	script := block(t, "README.md", "restore")
	dir, err := os.MkdirTemp("", "deeplink-restore-") // PostgreSQL's user cannot enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	bin, old, fresh := filepath.Join(dir, "bin"), openStack(t, dir), filepath.Join(dir, "fresh")
	if err := os.MkdirAll(fresh, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(fresh, 0o777); err != nil {
		t.Fatal(err)
	}
	path := fill(t, old)

	address, err := devservers.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	moved := func(database string) string {
		u, err := url.Parse(database)
		if err != nil {
			t.Fatal(err)
		}
		u.Host = address
		return u.String()
	}
	data := filepath.Join(fresh, "data")
	server := postgresUser(t, fresh, "PATH="+strings.Join([]string{bin, postgresPrograms(t), os.Getenv("PATH")}, ":"), "OWNER_URL="+old.Owner, "FRESH_OWNER_URL="+moved(old.Owner), "PGDATA="+data,
		"SERVER_OPTIONS=-c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off -c port="+address[strings.LastIndexByte(address, ':')+1:])
	t.Cleanup(func() { server(context.Background(), `pg_ctl stop --mode=immediate --silent --pgdata="$PGDATA"`) })
	if out, err := server(t.Context(), "set -euo pipefail\n"+script); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	edge, err := old.LaunchEdge(freeAddress(t), "DATABASE_URL="+moved(old.Edge))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { edge.Kill() })
	if err := edge.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if status := click(t, edge.URL()+path); status != http.StatusFound {
		t.Errorf("an edge on the restored database responds with %d, expected 302", status)
	}
	// The comparison must detect differences.
	for what, change := range map[string]string{
		"a link with another path": `update links set path = '/other'`, "a missing event": `delete from events`, "a missing user": `delete from identities`,
	} {
		if out, err := server(t.Context(), "set -euo pipefail\n"+strings.SplitAfter(script, "\n}\n")[0]+
			`psql --quiet --command="`+change+`" "$FRESH_OWNER_URL"; contents "$FRESH_OWNER_URL" >now.txt; if diff contents.txt now.txt; then exit 1; fi; mv now.txt contents.txt`); err != nil {
			t.Errorf("%s counts as equal\n%s", what, out)
		}
	}
}

// TestCopyOfADeletedOrganization runs the block of README.md: the link of a deleted organization resolves again, and an organization
// without links can create one.
func TestCopyOfADeletedOrganization(t *testing.T) {
	t.Parallel()
	lines := block(t, "README.md", "copy-organization")
	dir := openDir(t)
	s := openStack(t, dir)
	path := fill(t, s)
	made, err := s.Operate(t.Context(), s.Control, "org", "create", "--name=Empty", "--org-key=none", "--plan=growth", "--app-config=demo")
	if err != nil {
		t.Fatal(err)
	}
	copied, err := url.Parse(s.Owner)
	if err != nil {
		t.Fatal(err)
	}
	copied.Path = "/copy"
	run := postgresUser(t, dir, "PATH="+postgresPrograms(t)+":"+os.Getenv("PATH"), "OWNER_URL="+s.Owner, "COPY_URL="+copied.String())
	const lose = `set -euo pipefail
		psql --quiet "$OWNER_URL" -c 'create database copy'
		pg_dump "$OWNER_URL" | psql --quiet --set=ON_ERROR_STOP=1 "$COPY_URL" >/dev/null
		psql --quiet --set=ON_ERROR_STOP=1 "$OWNER_URL" -c 'delete from links' -c 'delete from domains' -c 'delete from organizations'
		for ID in $(psql --tuples-only --no-align "$COPY_URL" -c "select id from organizations where org_key in ('acme', 'none')"); do
	`
	if out, err := run(t.Context(), lose+lines+"done"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	edge, err := s.StartEdge(t.Context(), freeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { edge.Kill() })
	if status := click(t, edge.URL()+path); status != http.StatusFound {
		t.Errorf("the copied link responds with %d, expected 302", status)
	}
	control, err := s.StartControl(t.Context(), freeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { control.Kill() })
	post(t, control.URL()+"/links", regexp.MustCompile(`svc_api_\w+`).FindString(string(made)), `{"path":"/first"}`)
}

func openStack(t *testing.T, dir string) *stack.Stack {
	t.Helper()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "bin")
	if err := stack.Build(t.Context(), bin); err != nil {
		t.Fatal(err)
	}
	var log lockedBuffer
	s, err := stack.Open(t.Context(), stack.Options{Dir: filepath.Join(dir, "old"), Bin: bin, LinkBase: "http://127.0.0.1:1", Output: &log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if elsewhere := s.PostgresElsewhere(); elsewhere != "" {
			os.RemoveAll(elsewhere)
		}
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return s
}

// lockedBuffer collects the output of several programs.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// fill creates an organization with a link, and sends an event of a phone. It returns the path of the link.
func fill(t *testing.T, s *stack.Stack) string {
	t.Helper()
	made, err := s.Operate(t.Context(), s.Control, "org", "create", "--name=Acme", "--org-key=acme", "--plan=growth", "--app-config=demo")
	if err != nil {
		t.Fatal(err)
	}
	control, err := s.StartControl(t.Context(), freeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	defer control.Stop(context.Background(), time.Minute)
	server, client := regexp.MustCompile(`svc_api_\w+`).FindString(string(made)), regexp.MustCompile(`svc_sdk_\w+`).FindString(string(made))
	post(t, control.URL()+"/links", server, `{"path":"/sale","shortCode":"sale","fallbackUrl":"https://example.com/sale"}`)
	post(t, control.URL()+"/sdk/session", client, `{"deviceId":"phone"}`)
	post(t, control.URL()+"/sdk/identity", client, `{"deviceId":"phone","userId":"ann"}`)
	post(t, control.URL()+"/sdk/events", client, `{"deviceId":"phone","events":[{"id":"00000000-0000-7000-8000-000000000001","name":"opened"}]}`)
	return "/acme/sale"
}

func post(t *testing.T, address, key, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusCreated {
		t.Fatalf("POST %s: %d", address, response.StatusCode)
	}
}

func click(t *testing.T, address string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultTransport.RoundTrip(request) // without following redirects
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode
}

func freeAddress(t *testing.T) string {
	t.Helper()
	addr, err := devservers.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// postgresPrograms returns the folder of PostgreSQL's programs, which Debian does not add to PATH.
func postgresPrograms(t *testing.T) string {
	t.Helper()
	if found, err := filepath.Glob("/usr/lib/postgresql/*/bin"); err == nil && len(found) > 0 {
		return found[len(found)-1]
	}
	program, err := exec.LookPath("pg_ctl")
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(program)
}

// postgresUser returns a function that runs scripts in dir as PostgreSQL's user, or as the current user if that is not root.
func postgresUser(t *testing.T, dir string, environment ...string) func(ctx context.Context, script string) ([]byte, error) {
	t.Helper()
	attributes := &syscall.SysProcAttr{}
	if os.Geteuid() == 0 {
		account, err := user.Lookup("postgres")
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.ParseUint(account.Uid, 10, 32)
		gid, _ := strconv.ParseUint(account.Gid, 10, 32)
		attributes.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	return func(ctx context.Context, script string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, "bash", "-c", script)
		cmd.Dir, cmd.Env, cmd.SysProcAttr = dir, append(environment, "LC_ALL=C.UTF-8"), attributes
		return cmd.CombinedOutput()
	}
}
