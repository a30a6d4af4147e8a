package deploy

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
)

// dockerStandIn replaces docker in the blocks of README.md and UPGRADING.md, because tests run without Docker. It does what each command
// does in the containers, with the private PostgreSQL of a test, and fails on an unknown command or option. It writes each command to
// $CALLS.
const dockerStandIn = `#!/bin/bash
set -euo pipefail
[ "$1 $2 $3 $4 $5" = "compose --file deploy/compose.yaml --env-file deploy/compose.env" ] || { echo "docker $*" >&2; exit 64; }
shift 5
echo "$*" >>"$CALLS"
export PGHOST=127.0.0.1 PGPORT=$(cat "$PORT_FILE")
case $* in
"exec -T postgres "*) shift 3; exec "$@" ;;
"exec -T nginx wget -q -O /dev/null http://"*) # not ready for two attempts
	[ "$(grep --count --fixed-strings "$*" "$CALLS")" -gt 2 ] ;;
"exec control-1 /control doctor") DATABASE_URL=$FRESH_CONTROL_URL control doctor >&2 ;;
"run --rm --no-deps -T --entrypoint tar postgres "*)
	shift 7
	[ "$*" = "-x -C /var/lib/postgresql/data" ] || exit 64
	exec tar -x -C "$FRESH_DATA" ;;
"run --rm migrate" | build | "up --detach --no-deps "*) ;;
"up --detach --wait postgres")
	chmod 700 "$FRESH_DATA" # as the image does when it starts
	pg_ctl start --wait --silent --pgdata="$FRESH_DATA" --log="$FRESH_DATA/log" --options="$FRESH_OPTIONS"
	echo "$FRESH_PORT" >"$PORT_FILE" ;;
"up --detach --build")
	DATABASE_URL=$FRESH_OWNER_URL control migrate >&2
	psql --no-psqlrc --quiet --set=ON_ERROR_STOP=1 --file="$LOGINS" "$FRESH_OWNER_URL" ;;
*) echo "docker compose $*" >&2; exit 64 ;;
esac
`

// block returns the block of a document with that name.
func block(t *testing.T, document, name string) string {
	t.Helper()
	found := regexp.MustCompile("(?s)```bash " + name + "\n(.*?)```").FindStringSubmatch(read(t, document))
	if found == nil {
		t.Fatalf("%s has no block %q", document, "bash "+name)
	}
	return found[1]
}

// writeDocker writes the stand-in to the folder bin of dir, readable for PostgreSQL's user.
func writeDocker(t *testing.T, dir string) (bin string) {
	t.Helper()
	bin = filepath.Join(dir, "docker")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "docker"), []byte(dockerStandIn), 0o755); err != nil {
		t.Fatal(err)
	}
	return bin
}

// openDir creates a folder that PostgreSQL's user can reach and write to.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "deeplink-compose-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestBackupAndRestoreUnderCompose runs the blocks of README.md: the restored database equals the one before the backup, the logins work,
// and an edge serves a link.
func TestBackupAndRestoreUnderCompose(t *testing.T) {
	t.Parallel()
	backup, restore := block(t, "README.md", "compose-backup"), block(t, "README.md", "compose-restore")
	contents := strings.SplitAfter(block(t, "README.md", "restore"), "\n}\n")[0]
	dir := openDir(t)
	old := openStack(t, dir)
	if err := os.Chmod(dir, 0o777); err != nil { // openStack has removed the write permission
		t.Fatal(err)
	}
	path := fill(t, old)
	address := freeAddress(t)
	moved := func(database string, user *url.Userinfo) string {
		u, err := url.Parse(database)
		if err != nil {
			t.Fatal(err)
		}
		u.Host = address
		if user != nil {
			u.User = user
		}
		return u.String()
	}
	owner, err := url.Parse(old.Owner)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := owner.User.Password()
	copied := filepath.Join("kubernetes", "logins", "logins.sql")
	if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(copied)), 0o755); err != nil {
		t.Fatal(err)
	}
	// logins.sql includes the other file.
	for name, content := range map[string]string{"port": owner.Port(), "logins.sql": read(t, "logins.sql"), copied: read(t, copied)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, name), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	fresh, port := filepath.Join(dir, "fresh"), address[strings.LastIndexByte(address, ':')+1:]
	control := moved(old.Control, url.UserPassword("deeplink_control_login", "of-control"))
	run := postgresUser(t, dir,
		"PATH="+strings.Join([]string{writeDocker(t, dir), filepath.Join(dir, "bin"), postgresPrograms(t), os.Getenv("PATH")}, ":"),
		"CALLS="+filepath.Join(dir, "calls"), "PORT_FILE="+filepath.Join(dir, "port"), "PGPASSWORD="+password, "LOGINS="+filepath.Join(dir, "logins.sql"),
		"FRESH_DATA="+fresh, "FRESH_PORT="+port, "FRESH_OWNER_URL="+moved(old.Owner, nil), "FRESH_CONTROL_URL="+control, "OLD_OWNER_URL="+old.Owner,
		"CONTROL_PASSWORD=of-control", "EDGE_PASSWORD=of-edge", "REDIS_URL="+old.Redis.URL(), "LINK_BASE_URL=http://127.0.0.1:1",
		"FRESH_OPTIONS=-c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off -c port="+port)
	t.Cleanup(func() { run(context.Background(), `pg_ctl stop --mode=immediate --silent --pgdata="$FRESH_DATA"`) })
	script := "set -euo pipefail\n" + contents + "contents \"$OLD_OWNER_URL\" >before.txt\n" + backup + "mkdir \"$FRESH_DATA\"\n" + restore +
		"contents \"$FRESH_OWNER_URL\" | diff before.txt -\n"
	if out, err := run(t.Context(), script); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	edge, err := old.LaunchEdge(freeAddress(t), "DATABASE_URL="+moved(old.Edge, url.UserPassword("deeplink_edge_login", "of-edge")))
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
}

// TestUpgradeUnderCompose runs the block of UPGRADING.md: the schema is migrated first, and each program is ready before the next is
// replaced.
func TestUpgradeUnderCompose(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	calls := filepath.Join(dir, "calls")
	if err := os.WriteFile(filepath.Join(dir, "port"), []byte("1"), 0o666); err != nil {
		t.Fatal(err)
	}
	run := postgresUser(t, dir, "PATH="+writeDocker(t, dir)+":"+os.Getenv("PATH"), "CALLS="+calls, "PORT_FILE="+filepath.Join(dir, "port"))
	if out, err := run(t.Context(), "sleep() { :; }\n"+block(t, "UPGRADING.md", "compose-upgrade")); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	want := "build\nrun --rm migrate\n"
	for _, one := range []string{"control-1:9081", "control-2:9081", "edge-1:9080", "edge-2:9080"} {
		service, _, _ := strings.Cut(one, ":")
		// The stand-in is ready at the third attempt.
		want += "up --detach --no-deps " + service + "\n" + strings.Repeat("exec -T nginx wget -q -O /dev/null http://"+one+"/readyz\n", 3)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("commands of docker compose (-expected +got):\n%s", diff)
	}
}

// TestLoginsJobCreatesTheLogins runs the command of the Kubernetes job twice on a migrated database: the second run sets new passwords.
func TestLoginsJobCreatesTheLogins(t *testing.T) {
	t.Parallel()
	command := regexp.MustCompile(`command: \[(psql, .*)\]`).FindStringSubmatch(read(t, "kubernetes/logins/logins.yaml"))
	if command == nil {
		t.Fatal("kubernetes/logins/logins.yaml has no command")
	}
	sql := read(t, "kubernetes/logins/logins.sql")
	dir := openDir(t)
	s := openStack(t, dir)
	file := filepath.Join(dir, "logins.sql")
	if err := os.WriteFile(file, []byte(sql), 0o644); err != nil {
		t.Fatal(err)
	}
	arguments := strings.NewReplacer(", ", " ", "/logins/logins.sql", file, "$(DATABASE_URL)", `"$DATABASE_URL"`).Replace(command[1])
	for _, password := range []string{"first", "second"} {
		run := postgresUser(t, dir, "PATH="+os.Getenv("PATH"), "DATABASE_URL="+s.Owner, "CONTROL_PASSWORD="+password, "EDGE_PASSWORD="+password,
			"PGSSLROOTCERT=/etc/ssl/certs/ca-certificates.crt")
		if out, err := run(t.Context(), "exec "+arguments); err != nil || bytes.Contains(out, []byte(password)) {
			t.Fatalf("%s: %v\n%s", arguments, err, out)
		}
		for _, login := range []string{"deeplink_control_login", "deeplink_edge_login"} {
			u, err := url.Parse(s.Owner)
			if err != nil {
				t.Fatal(err)
			}
			u.User = url.UserPassword(login, password)
			conn, err := pgx.Connect(t.Context(), u.String())
			if err != nil {
				t.Errorf("%s cannot log in: %v", login, err)
				continue
			}
			if _, err := conn.Exec(t.Context(), `select count(*) from links`); err != nil {
				t.Errorf("%s has no rights: %v", login, err)
			}
			conn.Close(context.Background())
		}
	}
}
