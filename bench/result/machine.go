package result

import (
	"bufio"
	"os"
	"runtime"
	"strings"
)

// Machine describes where figures come from. Without it they are meaningless.
type Machine struct {
	System string `json:"system"`
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory string `json:"memory"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
}

// ThisMachine describes the current machine; unknown fields are "".
func ThisMachine() Machine {
	return Machine{
		System: runtime.GOOS + "/" + runtime.GOARCH,
		CPU:    field("/proc/cpuinfo", "model name"),
		Cores:  runtime.NumCPU(),
		Memory: field("/proc/meminfo", "MemTotal"),
		Kernel: firstLine("/proc/sys/kernel/osrelease"),
		Go:     runtime.Version(),
	}
}

func field(path, name string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if key, value, found := strings.Cut(lines.Text(), ":"); found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func firstLine(path string) string {
	text, _ := os.ReadFile(path)
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}
