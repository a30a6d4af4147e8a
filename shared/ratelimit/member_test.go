package ratelimit

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

const memberURL = "RATELIMIT_TEST_MEMBER"

var memberSurface = Surface{Name: "busy", Limit: 1000, Window: time.Hour}

// member is a process with a limiter.
type member struct {
	in  io.Writer
	out *bufio.Reader
}

func startMember(t *testing.T, url string) *member {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMember$", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), memberURL+"="+url)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	m := &member{in, bufio.NewReader(out)}
	m.tell(t, fmt.Sprintf("%x %d", make([]byte, 16), 1))
	m.answer(t) // its connections may not have been there yet
	return m
}

func (m *member) tell(t *testing.T, line string) {
	t.Helper()
	if _, err := fmt.Fprintln(m.in, line); err != nil {
		t.Fatal(err)
	}
}

func (m *member) answer(t *testing.T) (admitted, fallbacks int) {
	t.Helper()
	line, err := m.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(line, &admitted, &fallbacks); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return admitted, fallbacks
}

// TestMember is the process of a member: it sends a burst for each line it reads.
func TestMember(t *testing.T) {
	url, ok := os.LookupEnv(memberURL)
	if !ok {
		t.Skip("only as a process of TestLimitHoldsOverTwoProcessesOnABusyMachine")
	}
	client, err := Open(url, Connections)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for deadline := time.Now().Add(patient); client.Ping(context.Background()).Err() != nil && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	limiter := New(NewRedis(client, "limit:"), memberSurface)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var name string
		var n int
		if _, err := fmt.Sscan(lines.Text(), &name, &n); err != nil {
			t.Fatal(err)
		}
		var key Key
		if _, err := hex.Decode(key[:], []byte(name)); err != nil {
			t.Fatal(err)
		}
		before := limiter.Fallbacks()
		admitted := burst([]*Limiter{limiter}, memberSurface, key, n)
		fmt.Printf("%d %d\n", admitted, limiter.Fallbacks()-before)
	}
}
