package clients_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"deeplink/shared/testkit"
)

// androidPhone is the Android client, compiled with testdata/android/Phone.kt for the JVM.
type androidPhone struct{ classpath string }

// buildAndroidPhone compiles the client with the Kotlin compiler of $KOTLIN_HOME and Android's org.json of $ANDROID_JSON. `make clients`
// installs both. Tests run on a JVM without Android, so testdata/android/Android.java has the Android classes that the client uses.
func buildAndroidPhone(t *testing.T) androidPhone {
	t.Helper()
	kotlin, json := os.Getenv("KOTLIN_HOME"), os.Getenv("ANDROID_JSON")
	if kotlin == "" || json == "" {
		t.Skip("KOTLIN_HOME and ANDROID_JSON are not set; `make clients` installs a Kotlin compiler and runs this test")
	}
	dir := t.TempDir()
	source, err := os.ReadFile("testdata/android/Android.java")
	if err != nil {
		t.Fatal(err)
	}
	javac := []string{"-d", filepath.Join(dir, "android")}
	for _, unit := range strings.Split(string(source), "\npackage ")[1:] {
		name := regexp.MustCompile(`(?m)^public (?:abstract )?(?:class|interface) (\w+)`).FindStringSubmatch(unit)
		file := filepath.Join(dir, "source", strings.ReplaceAll(unit[:strings.IndexByte(unit, ';')], ".", "/"), name[1]+".java")
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("package "+unit), 0o644); err != nil {
			t.Fatal(err)
		}
		javac = append(javac, file)
	}
	tool(t, "javac", javac...)
	android, phone := filepath.Join(dir, "android"), filepath.Join(dir, "phone.jar")
	tool(t, "java", "-cp", filepath.Join(kotlin, "lib", "kotlin-preloader.jar"), "org.jetbrains.kotlin.preloading.Preloader",
		"-cp", filepath.Join(kotlin, "lib", "kotlin-compiler.jar"), "org.jetbrains.kotlin.cli.jvm.K2JVMCompiler",
		"-Werror", "-cp", json+":"+android, "-d", phone,
		"android/Deeplink.kt", "android/DeeplinkAndroid.kt", "testdata/android/Phone.kt")
	return androidPhone{strings.Join([]string{phone, json, android, filepath.Join(kotlin, "lib", "kotlin-stdlib.jar")}, ":")}
}

func tool(t *testing.T, name string, arguments ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, arguments...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

// install is the client on one phone, for one organization.
type install struct {
	phone         androidPhone
	folder        string
	control, edge string
	key           string
}

func (p androidPhone) install(t *testing.T, h *testStack, o tenant) install {
	t.Helper()
	return install{p, t.TempDir(), h.control.URL(), h.edge.URL(), o.ClientKey}
}

func (i install) command(t *testing.T, scene ...string) *exec.Cmd {
	t.Helper()
	arguments := append([]string{"-XX:TieredStopAtLevel=1", "-cp", i.phone.classpath, "com.example.deeplink.PhoneKt", i.folder, i.control, i.edge, i.key}, scene...)
	command := exec.CommandContext(t.Context(), "java", arguments...)
	command.Stderr = os.Stderr
	return command
}

// run runs a process of the app to its end, and returns the lines that it printed. status is the expected exit code.
func (i install) run(t *testing.T, status int, scene ...string) []string {
	t.Helper()
	command := i.command(t, scene...)
	out, err := command.Output()
	if got := command.ProcessState.ExitCode(); got != status {
		t.Fatalf("%v: exit code %d, expected %d: %v\n%s", scene, got, status, err, out)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

// names returns the sorted names of the events that the process reports as tracked.
func names(lines []string) (tracked []string) {
	for _, line := range lines {
		if name, ok := strings.CutPrefix(line, "tracked "); ok {
			tracked = append(tracked, name)
		}
	}
	slices.Sort(tracked)
	return tracked
}

// TestAndroidClientOnTheJVM kills the process of the app: an event for which track has returned must be stored once by the service, and a
// link that was opened offline must arrive later.
func TestAndroidClientOnTheJVM(t *testing.T) {
	testkit.Prove(t)
	phone := buildAndroidPhone(t)
	h := openTestStack(t)

	t.Run("killed with signal 9 in the middle of its writes", func(t *testing.T) {
		o := h.tenant(t)
		i := phone.install(t, h, o)
		var tracked []string
		for round := range 3 {
			command := i.command(t, "track", fmt.Sprint("e", round))
			out, err := command.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			for n := 0; lines.Scan(); n++ {
				tracked = append(tracked, strings.TrimPrefix(lines.Text(), "tracked "))
				if n == 100+10*round {
					if err := command.Process.Kill(); err != nil {
						t.Fatal(err)
					}
				}
			}
			_ = command.Wait()
		}
		if len(tracked) < 300 || len(tracked) > 990 {
			t.Fatalf("%d events were tracked, expected more than 300 and fewer than the queue holds", len(tracked))
		}
		i.run(t, 0, "flush")
		stored := h.events(t, o)
		for _, name := range tracked {
			if !slices.Contains(stored, event{Name: name}) {
				t.Errorf("event %s is lost: track had returned", name)
			}
		}
		// In each round, one event may be stored whose line was not printed any more.
		if len(stored) > len(tracked)+3 || len(slices.Compact(stored)) != len(stored) {
			t.Errorf("%d events stored, %d tracked; expected each once", len(stored), len(tracked))
		}
	})

	t.Run("killed before each of its writes", func(t *testing.T) {
		for write := 0; ; write++ {
			o := h.tenant(t)
			i := phone.install(t, h, o)
			command := i.command(t, "die", fmt.Sprint(write))
			out, _ := command.Output()
			lines := strings.Split(string(out), "\n")
			dropped := i.run(t, 0, "drain")
			if dropped[0] != "" {
				t.Errorf("killed before write %d: %q", write, dropped)
			}
			stored := h.events(t, o)
			for _, name := range names(lines) {
				if n := len(slices.DeleteFunc(slices.Clone(stored), func(e event) bool { return e.Name != name })); n != 1 {
					t.Errorf("killed before write %d: event %q is stored %d times", write, name, n)
				}
			}
			if !slices.ContainsFunc(stored, func(e event) bool { return e.Name == "last" && e.User == "ann" }) {
				t.Errorf("killed before write %d: the service does not know the user: %v", write, stored)
			}
			switch code := command.ProcessState.ExitCode(); code {
			case 137:
			case 0: // the process was not killed
				if want := []string{"after", "as ann", "before"}; !slices.Equal(names(lines), want) || write < 6 {
					t.Errorf("after %d writes: tracked %q, expected %q", write, names(lines), want)
				}
				return
			default:
				t.Fatalf("killed before write %d: exit code %d", write, code)
			}
		}
	})

	t.Run("killed between the writes of a match", func(t *testing.T) {
		o := h.tenant(t)
		link := h.link(t, o, `{"path":"/items/7"}`)
		for write := 0; ; write++ {
			i := phone.install(t, h, o)
			referrer := "utm_source=x&mt=" + h.clickToken(t, link.URL)
			command := i.command(t, "match", fmt.Sprint(write), referrer)
			out, _ := command.Output()
			if command.ProcessState.ExitCode() == 0 {
				if string(out) != "link /items/7\n" || write < 3 {
					t.Errorf("after %d writes: %q", write, out)
				}
				return
			}
			if got := i.run(t, 0, "match", "1000", referrer); got[0] != "link /items/7" {
				t.Errorf("killed before write %d: the next run got %q, expected the link", write, got)
			}
		}
	})

	t.Run("a link opened offline arrives when the service can be reached", func(t *testing.T) {
		o := h.tenant(t)
		link := h.link(t, o, `{"path":"/items/7"}`)
		i := phone.install(t, h, o)
		online := i.control
		i.control = "http://127.0.0.1:1"
		if got := i.run(t, 137, "open", link.URL); !slices.Equal(got, []string{"failed"}) {
			t.Errorf("offline: %q, expected failed", got)
		}
		i.control = online
		if got := i.run(t, 0, "flush"); !slices.Equal(got, []string{"link /items/7"}) {
			t.Errorf("online again: %q, expected the link", got)
		}
		if got := i.run(t, 0, "flush"); !slices.Equal(got, []string{""}) {
			t.Errorf("after the response: %q, expected nothing", got)
		}
		if got := i.run(t, 137, "open", link.URL); !slices.Equal(got, []string{"link /items/7"}) {
			t.Errorf("online: %q, expected the link", got)
		}
		if got := i.run(t, 0, "flush"); !slices.Equal(got, []string{""}) {
			t.Errorf("the link arrived a second time: %q", got)
		}
	})

	t.Run("a SecurityException does not crash it", func(t *testing.T) {
		i := phone.install(t, h, h.tenant(t))
		// Without the permission INTERNET, and on a phone on which Google Play is not accessible to the app.
		for scene, want := range map[string][]string{"denied": {"failed", "waiting 1"}, "play connect": {"link null"}, "play read": {"link null"}} {
			i.folder = t.TempDir()
			if got := i.run(t, 0, strings.Fields(scene)...); !slices.Equal(got, want) {
				t.Errorf("%s: %q, expected %q", scene, got, want)
			}
		}
	})
}
