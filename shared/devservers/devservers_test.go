package devservers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// holderFolder is the variable that turns this test binary into a program that starts both servers in the folder that it names, prints
// their processes and waits to be killed.
const holderFolder = "DEEPLINK_DAEMON_HOLDER"

// patient bounds waits for things that happen soon, on a busy machine.
const patient = 30 * time.Second

func TestMain(m *testing.M) {
	if folder := os.Getenv(holderFolder); folder != "" {
		if err := hold(folder); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	goleak.VerifyTestMain(m)
}

func hold(folder string) error {
	postgres, err := StartPostgres(context.Background(), PostgresOptions{Dir: folder})
	if err != nil {
		return err
	}
	redis, err := StartRedis(context.Background(), RedisOptions{Dir: folder})
	if err != nil {
		return err
	}
	if strings.HasSuffix(folder, "paused") {
		if err := errors.Join(postgres.Pause(), redis.Pause()); err != nil {
			return err
		}
	}
	fmt.Println(postgres.child.process.Pid, redis.child.process.Pid)
	select {}
}

func TestServersEndWithTheirParentProcess(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"running", "paused"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			binary, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			folder := folder(t) + "/" + state
			holder := exec.Command(binary)
			holder.Env = append(os.Environ(), holderFolder+"="+folder)
			output, err := holder.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := holder.Start(); err != nil {
				t.Fatal(err)
			}
			line, _ := bufio.NewReader(output).ReadString('\n')
			var postgres, redis int
			_, scanned := fmt.Sscan(line, &postgres, &redis)
			backends, listed := childrenOf(postgres)
			if err := errors.Join(holder.Process.Kill(), scanned, listed); err != nil {
				t.Fatalf("the holder printed %q: %v", line, err)
			}
			if len(backends) == 0 {
				t.Error("PostgreSQL had no processes")
			}
			_ = holder.Wait() // by Kill
			for _, pid := range append(backends, postgres, redis) {
				within(t, func() bool { return gone(pid) }, fmt.Sprintf("process %d ends", pid))
			}
		})
	}
}

// gone reports whether a process has ended, even if its parent has not reaped it yet.
func gone(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func TestServersIgnoreTheTerminalsSignals(t *testing.T) {
	t.Parallel()
	redis := startRedis(t, RedisOptions{Dir: t.TempDir()})
	group, err := syscall.Getpgid(redis.child.process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if group == syscall.Getpgrp() {
		t.Errorf("the server is in the test's process group, %d", group)
	}
}

func TestFreePortReturnsEachPortOnce(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	seen := make(map[int]bool)
	for range 500 {
		port, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] || port < lowestPort || port > highestPort {
			t.Fatalf("port %d was returned twice or is out of range", port)
		}
		seen[port] = true
	}
}

func TestTakenPortIsReplacedOnlyIfItWasChosenByUs(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	busy := taken.Addr().(*net.TCPAddr).Port
	failure := errors.New("refused")

	var tried []int
	port := 0
	err = withPort(&port, func() error {
		tried = append(tried, port)
		if len(tried) == 1 {
			port = busy // as if another process had taken the port first
			return failure
		}
		return nil
	})
	if err != nil || len(tried) != 2 || port != tried[1] || tried[0] == tried[1] {
		t.Errorf("tried %v, then %d, %v; expected a second port", tried, port, err)
	}

	calls := 0
	given := busy
	if err := withPort(&given, func() error { calls++; return failure }); !errors.Is(err, failure) || calls != 1 || given != busy {
		t.Errorf("given port: %d calls, %v, port %d", calls, err, given)
	}

	calls, port = 0, 0
	if err := withPort(&port, func() error { calls++; return failure }); !errors.Is(err, failure) || calls != 1 {
		t.Errorf("failure unrelated to the port: %d calls, %v", calls, err)
	}
}

func TestParseStatReadsNameAndParent(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		stat, name string
		parent     int
		fails      bool
	}{
		{"12 (postgres) S 7 12 12 0", "postgres", 7, false},
		{"12 (a (b) c) R 1 2 3", "a (b) c", 1, false},
		{"12 postgres S 7", "", 0, true},
		{"12 (postgres)", "", 0, true},
		{"", "", 0, true},
	} {
		name, parent, err := parseStat([]byte(test.stat))
		if name != test.name || parent != test.parent || (err != nil) != test.fails {
			t.Errorf("%q: got %q, %d, %v; expected %q, %d", test.stat, name, parent, err, test.name, test.parent)
		}
	}
}

// folder returns a folder that PostgreSQL's user can reach; it cannot reach t.TempDir when the tests run as root.
func folder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "deeplink-devservers-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	return folder
}

// within polls a condition until it holds.
func within(t *testing.T, condition func() bool, expected string) {
	t.Helper()
	for deadline := time.Now().Add(patient); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for: %s", expected)
		}
	}
}

// A port stays reserved even while no server listens on it: before its server starts, or while that server is down.
func TestFreeAddrReturnsDifferentPortsToDifferentProcesses(t *testing.T) {
	t.Parallel()
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := claim(port); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("port %d was claimed again: %v, %v", port, again, err)
	}
}
