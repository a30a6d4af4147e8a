package testenv

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"deeplink/shared/devservers"
)

// Build builds the program control without the race detector and returns its path.
func Build(t testing.TB) string {
	t.Helper()
	path, err := devservers.Build(t.Context(), "deeplink/control")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Environ returns the environment of a child process: PATH, HOME and these settings.
func Environ(settings ...string) []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}, settings...)
}

// Settings returns the environment variables that every command of control needs.
func (w *Env) Settings() []string {
	return Environ("DATABASE_URL="+w.DB.ControlURL, "REDIS_URL="+w.Redis.URL(), "LINK_BASE_URL="+LinkBase)
}

// Launch starts the program at path as a process of its own and waits until it is ready. It ends with the test.
func (w *Env) Launch(path string, settings ...string) (*Control, *devservers.Program) {
	w.T.Helper()
	api, admin := FreeAddress(w.T), FreeAddress(w.T)
	p := &Control{T: w.T, Base: "http://" + api, Admin: "http://" + admin, Log: new(LogBuffer)}
	settings = append(append(w.Settings(),
		"CONTROL_ADDR="+api, "CONTROL_ADMIN_ADDR="+admin, "CONTROL_DRAIN=0s", "CONTROL_CANARY=0s"), settings...)
	program, err := devservers.StartProgram(path, nil, settings, p.Log)
	if err != nil {
		w.T.Fatal(err)
	}
	p.Stop = sync.OnceValue(func() int {
		if err := program.Stop(context.Background(), 20*time.Second); err != nil {
			w.T.Error(err)
		}
		return 0
	})
	w.T.Cleanup(func() {
		p.Stop()
		p.Explain()
	})
	p.AwaitReady()
	return p, program
}
