package fleet

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// ServerCore and ClientCore are the cores of who answers and of who asks, as taskset names them: the same one where there is no second.
var ServerCore, ClientCore = cores()

// cores returns the first and the last core that this process may use, as taskset names them.
func cores() (first, last string) {
	text, _ := os.ReadFile("/proc/self/status") // without it, it is the first core for all
	for line := range strings.Lines(string(text)) {
		if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			if ends := strings.FieldsFunc(list, func(c rune) bool { return c < '0' || c > '9' }); len(ends) > 0 {
				return ends[0], ends[len(ends)-1]
			}
		}
	}
	return "0", "0"
}

// OnCore is what is put before a command that is to run on one core.
func OnCore(core string) []string { return []string{"taskset", "-c", core} }

// Pin gives every thread of a process the core of servers, and with them those that they make. It is done twice for the ones made
// meanwhile.
func Pin(pid int) error {
	for range 2 {
		cmd := exec.Command("taskset", "-a", "-c", "-p", ServerCore, strconv.Itoa(pid))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%q: %w: %s", cmd.Args, err, out)
		}
	}
	return nil
}
