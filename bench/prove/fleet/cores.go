package fleet

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// ServerCore and ClientCore are the cores of servers and of clients, in taskset's notation. They are the same if there is only one core.
var ServerCore, ClientCore = cores()

// cores returns the first and the last core that this process may use, in taskset's notation.
func cores() (first, last string) {
	text, _ := os.ReadFile("/proc/self/status") // without taskset: core 0 for both
	for line := range strings.Lines(string(text)) {
		if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			if ends := strings.FieldsFunc(list, func(c rune) bool { return c < '0' || c > '9' }); len(ends) > 0 {
				return ends[0], ends[len(ends)-1]
			}
		}
	}
	return "0", "0"
}

// OnCore returns the words that precede a command to run it on one core.
func OnCore(core string) []string { return []string{"taskset", "-c", core} }

// Pin moves every thread of a process to the server core; new threads inherit it. It runs twice, for threads created during the first pass.
func Pin(pid int) error {
	for range 2 {
		cmd := exec.Command("taskset", "-a", "-c", "-p", ServerCore, strconv.Itoa(pid))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%q: %w: %s", cmd.Args, err, out)
		}
	}
	return nil
}
