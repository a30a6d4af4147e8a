#!/bin/sh
# Installs the named programs that are missing, with the system's package manager: postgresql, redis, chromium, nginx, wrk, promtool,
# haproxy, caddy, systemd-analyze, javac, npm, android-json (Android's org.json; Debian only).
# On a terminal it asks first; with YES=1 or without a terminal it goes on. It installs servers but does not start them: everything
# here runs private ones.
set -eu

found() {
	case $1 in
	postgresql) ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || command -v postgres >/dev/null ;;
	redis) command -v redis-server >/dev/null ;;
	android-json) [ -e /usr/share/java/com.android.json.jar ] ;;
	*) command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ] ;;
	esac
}

missing=
for name; do
	found "$name" || missing="$missing $name"
done
[ -n "$missing" ] || exit 0

manager=
for name in apt-get dnf apk; do
	if command -v $name >/dev/null; then
		manager=$name
		break
	fi
done
if [ -z "$manager" ]; then
	echo "These programs are missing:$missing. Install them: this script only knows apt-get, dnf and apk." >&2
	exit 1
fi
root=
[ "$(id -u)" = 0 ] || root=sudo

if [ "${YES:-}" != 1 ] && [ -t 0 ] && [ -t 2 ]; then
	printf 'These programs are missing:%s. Install them with %s? [y/N] ' "$missing" "${root:+$root }$manager" >&2
	read -r reply || reply=
	case $reply in
	[yY] | [yY][eE][sS]) ;;
	*)
		echo "Nothing was installed. Install$missing yourself, or answer y (YES=1 skips the question)." >&2
		exit 1
		;;
	esac
fi
echo "installing:$missing" >&2

# packages SED-SCRIPT prints the names of the missing programs' packages.
packages() { echo "$missing" | sed "$1"; }
case $manager in
apt-get)
	# Debian starts a server as soon as it is installed, on its default port, unless a policy forbids it.
	policy=/usr/sbin/policy-rc.d
	if [ ! -e $policy ]; then
		printf '#!/bin/sh\nexit 101\n' | $root tee $policy >/dev/null
		$root chmod +x $policy
		trap '$root rm -f $policy' EXIT
		trap 'exit 130' INT TERM HUP
	fi
	$root apt-get update -qq -o Acquire::Retries=3
	# shellcheck disable=SC2046
	$root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq -o Acquire::Retries=3 --no-install-recommends \
		$(packages 's/redis/redis-server/; s/promtool/prometheus/; s/systemd-analyze/systemd/; s/javac/default-jdk-headless/; s/android-json/libandroid-json-java/') >/dev/null
	;;
dnf)
	# shellcheck disable=SC2046
	$root dnf install -y -q $(packages 's/postgresql/postgresql-server/; s/promtool/golang-github-prometheus/; s/systemd-analyze/systemd/; s/javac/java-devel/')
	;;
apk)
	# shellcheck disable=SC2046
	$root apk add -q $(packages 's/promtool/prometheus/')
	;;
esac
