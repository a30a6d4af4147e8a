// The parts of Android and of Google's installreferrer that DeeplinkAndroid.kt uses, with their signatures, so that it compiles and runs on a
// JVM. The build splits this file at the package lines. A phone on which Google Play is off limits throws SecurityException.

package android.content;
public abstract class Context {
	public abstract Context getApplicationContext();
	public abstract android.content.pm.PackageManager getPackageManager();
	public abstract String getPackageName();
	public abstract java.io.File getNoBackupFilesDir();
}

package android.content.pm;
public class PackageInfo {
	public String versionName;
}

package android.content.pm;
public class PackageManager {
	public PackageInfo getPackageInfo(String name, int flags) { return new PackageInfo(); }
}

package android.app;
public class Activity {}

package android.app;
public class Application extends android.content.Context {
	private final java.io.File folder;
	public Application(java.io.File folder) { this.folder = folder; }
	public android.content.Context getApplicationContext() { return this; }
	public android.content.pm.PackageManager getPackageManager() { return new android.content.pm.PackageManager(); }
	public String getPackageName() { return "com.example"; }
	public java.io.File getNoBackupFilesDir() { return folder; }
	public void registerActivityLifecycleCallbacks(ActivityLifecycleCallbacks callbacks) {}
	public interface ActivityLifecycleCallbacks {
		void onActivityCreated(Activity activity, android.os.Bundle state);
		void onActivityStarted(Activity activity);
		void onActivityResumed(Activity activity);
		void onActivityPaused(Activity activity);
		void onActivityStopped(Activity activity);
		void onActivitySaveInstanceState(Activity activity, android.os.Bundle state);
		void onActivityDestroyed(Activity activity);
	}
}

package android.os;
public class Build {
	public static final String MODEL = "test";
	public static class VERSION {
		public static final String RELEASE = "16";
	}
}

package android.os;
public class Bundle {}

package android.os;
public class RemoteException extends Exception {}

package android.os;
public class Looper {
	public static Looper getMainLooper() { return new Looper(); }
}

package android.os;
public class Handler {
	private static final java.util.concurrent.Executor MAIN = java.util.concurrent.Executors.newSingleThreadExecutor(task -> {
		Thread thread = new Thread(task, "main looper");
		thread.setDaemon(true);
		return thread;
	});
	public Handler(Looper looper) {}
	public final boolean post(Runnable task) {
		MAIN.execute(task);
		return true;
	}
}

package com.android.installreferrer.api;
public class ReferrerDetails {
	public String getInstallReferrer() { return ""; }
}

package com.android.installreferrer.api;
public interface InstallReferrerStateListener {
	void onInstallReferrerSetupFinished(int code);
	void onInstallReferrerServiceDisconnected();
}

package com.android.installreferrer.api;
public abstract class InstallReferrerClient {
	/** Where the phone throws: "connect" or "read". */
	public static String throwing = "";

	public @interface InstallReferrerResponse {
		int OK = 0;
		int FEATURE_NOT_SUPPORTED = 2;
	}

	public static final class Builder {
		public InstallReferrerClient build() { return new Client(); }
	}

	public static Builder newBuilder(android.content.Context context) { return new Builder(); }
	public abstract void startConnection(InstallReferrerStateListener listener);
	public abstract void endConnection();
	public abstract ReferrerDetails getInstallReferrer() throws android.os.RemoteException;

	private static final class Client extends InstallReferrerClient {
		public void startConnection(InstallReferrerStateListener listener) {
			if (throwing.equals("connect")) throw new SecurityException("Not allowed to bind to service Intent");
			new android.os.Handler(android.os.Looper.getMainLooper()).post(() -> listener.onInstallReferrerSetupFinished(InstallReferrerResponse.OK));
		}
		public void endConnection() {}
		public ReferrerDetails getInstallReferrer() {
			if (throwing.equals("read")) throw new SecurityException("Binder invocation to an incorrect interface");
			return new ReferrerDetails();
		}
	}
}
