package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"deeplink/deploy/stack"
	"deeplink/shared/devservers"
	"deeplink/shared/testkit"
)

// TestSyncExamples brings two organizations through three nights with 1,500 products, one with each example, and each night twice.
func TestSyncExamples(t *testing.T) {
	testkit.Prove(t)
	t.Parallel()
	dir, err := os.MkdirTemp("", "deeplink-sync-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // if this is root, PostgreSQL runs as another user
		t.Fatal(err)
	}
	if err := stack.Build(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "sync")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	addr, err := devservers.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	s, err := stack.Open(t.Context(), stack.Options{Dir: dir, Bin: dir, LinkBase: "http://127.0.0.1:1", Output: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	control, err := s.StartControl(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = control.Kill() })

	nights := []map[int]string{{}, {}, {}}
	for i := range 1500 {
		nights[0][i], nights[1][i] = "first", "first"
	}
	for i := range 200 {
		nights[1][i*3] = "second"
		nights[1][2000+i] = "new"
		delete(nights[1], i*3+1)
	}
	for i := range 10 {
		nights[2][i] = "third"
	}
	for org, run := range map[string]func(night int) *exec.Cmd{
		"curl": func(night int) *exec.Cmd {
			file := func(n int) string {
				name := filepath.Join(dir, fmt.Sprintf("night-%d", n))
				var lines strings.Builder
				if n >= 0 {
					for id, title := range nights[n] {
						fmt.Fprintf(&lines, `{"op":"upsert","externalId":"sku-%d","link":{"path":"/products/%d","title":%q}}`+"\n", id, id, title)
					}
				}
				if _, err := os.Stat(name); err != nil { // the order of the lines is that of the first time
					if err := os.WriteFile(name, []byte(lines.String()), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				return name
			}
			return exec.CommandContext(t.Context(), "./sync.sh", file(night), file(night-1))
		},
		"prog": func(night int) *exec.Cmd {
			cmd := exec.CommandContext(t.Context(), program)
			var in bytes.Buffer
			for id, title := range nights[night] {
				fmt.Fprintf(&in, `{"id":"sku-%d","path":"/products/%d","title":%q}`+"\n", id, id, title)
			}
			cmd.Stdin = &in
			return cmd
		},
	} {
		out, err := s.Operate(t.Context(), s.Control, "org", "create", "--name="+org, "--org-key="+org, "--plan=scale", "--app-config=demo")
		if err != nil {
			t.Fatal(err)
		}
		var created struct{ ID, ServerKey string }
		if err := json.Unmarshal(out, &created); err != nil {
			t.Fatal(err)
		}
		for night, products := range nights {
			for range 2 {
				cmd := run(night)
				cmd.Env = append(os.Environ(), "DEEPLINK_API="+control.URL(), "DEEPLINK_KEY="+created.ServerKey)
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%s, night %d: %v: %s", org, night, err, out)
				}
				compare(t, s, created.ID, products)
			}
		}
	}
}

// compare fails the test unless the links of the organization are those of the products.
func compare(t *testing.T, s *stack.Stack, organization string, products map[int]string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.Owner)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), `select external_id, path, title from links where organization_id = $1`, organization)
	if err != nil {
		t.Fatal(err)
	}
	links := map[string]string{}
	var id, path, title string
	if _, err := pgx.ForEachRow(rows, []any{&id, &path, &title}, func() error { links[id] = path + " " + title; return nil }); err != nil {
		t.Fatal(err)
	}
	for id, title := range products {
		if got, expected := links[fmt.Sprintf("sku-%d", id)], fmt.Sprintf("/products/%d %s", id, title); got != expected {
			t.Fatalf("the link of product %d is %q, expected %q", id, got, expected)
		}
	}
	if len(links) != len(products) {
		t.Fatalf("%d links, expected %d", len(links), len(products))
	}
}
