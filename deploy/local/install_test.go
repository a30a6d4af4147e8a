package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"deeplink/shared/testkit"
)

// TestInstallAsksOnATerminal runs install.sh with a script in place of the package manager, for a program that no package provides.
func TestInstallAsksOnATerminal(t *testing.T) {
	testkit.Prove(t)
	t.Parallel()
	for _, test := range []struct {
		name      string
		reply     string // typed on the terminal; "" for none
		yes       bool
		installed bool
	}{
		{name: "without a terminal", installed: true},
		{name: "yes", reply: "y\n", installed: true},
		{name: "no", reply: "n\n"},
		{name: "only the return key", reply: "\n"},
		{name: "end of input", reply: "\x04"},
		{name: "YES=1 on a terminal", reply: "n\n", yes: true, installed: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for _, name := range []string{"apt-get", "sudo", "tee", "chmod", "rm"} {
				script := "#!/bin/sh\n"
				if name == "apt-get" {
					script += `echo "$@" >>` + filepath.Join(dir, "calls") + "\n"
				}
				if name == "sudo" {
					script += "exec \"$@\"\n"
				}
				if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			command := exec.CommandContext(t.Context(), "./install.sh", "no-such-program")
			command.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
			if test.yes {
				command.Env = append(command.Env, "YES=1")
			}
			var shown bytes.Buffer
			command.Stderr = &shown
			if test.reply != "" {
				keyboard, terminal := openTerminal(t)
				command.Stdin, command.Stderr = terminal, terminal
				if _, err := keyboard.WriteString(test.reply); err != nil {
					t.Fatal(err)
				}
			}
			err := command.Run()
			calls, _ := os.ReadFile(filepath.Join(dir, "calls"))
			if installed := strings.Contains(string(calls), "no-such-program"); installed != test.installed || (err == nil) != test.installed {
				t.Errorf("installed: %v, expected %v; %v; calls of the package manager:\n%s\nshown:\n%s", installed, test.installed, err, calls, &shown)
			}
		})
	}
}

// openTerminal returns both ends of a pseudoterminal.
func openTerminal(t *testing.T) (keyboard, terminal *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { keyboard.Close() })
	if err := unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	return keyboard, terminal
}
