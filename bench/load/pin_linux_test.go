package load

import "testing"

func TestCoresAreReadAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	set, err := parseCores("0,2-3")
	if err != nil || set.Count() != 3 || !set.IsSet(0) || set.IsSet(1) || !set.IsSet(2) || !set.IsSet(3) {
		t.Errorf("0,2-3 is %v, %v", set, err)
	}
	for _, text := range []string{"", "x", "-1", "3-2", "1,", "1-", "5000"} {
		if _, err := parseCores(text); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}
