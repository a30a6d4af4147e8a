// A phone for android_test.go: each run is a process of an app, which the test kills. It prints a line for each call that has returned.
package com.example.deeplink

import android.app.Application
import com.android.installreferrer.api.InstallReferrerClient
import java.io.File
import java.io.IOException
import java.net.URL
import java.net.URLConnection
import java.net.URLStreamHandler
import java.util.concurrent.CountDownLatch
import java.util.concurrent.Executor
import java.util.concurrent.atomic.AtomicInteger
import kotlin.system.exitProcess

/** Ends the process, as kill -9 does, in place of the write with the given number: nothing of that write is there. */
private class Dying(private val kept: Store, private val last: Int) : Store by kept {
    private val writes = AtomicInteger()

    override fun set(key: String, value: String?) {
        if (writes.incrementAndGet() > last) Runtime.getRuntime().halt(137)
        kept[key] = value
    }
}

private class Referrer(private val referrer: String?) : FirstRun {
    override fun referrer(then: (String?) -> Unit) = then(referrer)
}

private fun say(line: String) {
    println(line)
    System.out.flush()
}

/** Usage: FOLDER CONTROL-URL EDGE-URL CLIENT-KEY SCENE [ARGUMENT]. */
fun main(arguments: Array<String>) {
    Thread.setDefaultUncaughtExceptionHandler { _, e -> // on Android the app crashes
        e.printStackTrace()
        Runtime.getRuntime().halt(3)
    }
    val (folder, control, edge, key, scene) = arguments
    val argument = arguments.getOrElse(5) { "" }
    val options = Options(key, control, edge, batchDelay = 600_000, onLink = { say("link " + it.path) }, onDrop = { entry, reason -> say("dropped $entry: $reason") })
    val main = Executor { it.run() }
    val device = mapOf("platform" to "android")
    fun open(last: Int = Int.MAX_VALUE, referrer: String? = null) =
        Deeplink(options, Dying(Files(File(folder)), last), Referrer(referrer), device, main)

    when (scene) {
        "track" -> { // until the test kills the process
            val client = open()
            for (i in generateSequence(0) { it + 1 }) {
                client.track("$argument-$i")
                say("tracked $argument-$i")
            }
        }
        "die" -> { // after so many writes
            val client = open(argument.toInt())
            client.track("before")
            say("tracked before")
            client.identify("ann")
            say("identified ann")
            client.track("as ann")
            say("tracked as ann")
            client.clearIdentity()
            say("identity cleared")
            client.track("after")
            say("tracked after")
            Runtime.getRuntime().halt(0)
        }
        "drain" -> { // what earlier runs left, and what an app does at every start
            val client = open()
            client.identify("ann")
            client.track("last")
            client.flush()
            untilEmpty(client)
        }
        "open" -> { // opened by a link, and ended as soon as that has failed
            val client = open()
            wait { done -> client.start(argument) { session -> say(session.fold({ "link " + it.link?.path }, { "failed" })); done() } }
            Runtime.getRuntime().halt(137)
        }
        "flush" -> {
            val client = open()
            client.flush()
            untilEmpty(client)
        }
        "match" -> { // dies after so many writes; the referrer is the last argument
            val client = open(argument.toInt(), arguments[6])
            wait { done -> client.match { link -> say(link.fold({ "link " + it?.path }, { "failed" })); done() } }
        }
        "denied" -> { // without the permission INTERNET
            URL.setURLStreamHandlerFactory { protocol ->
                if (!protocol.startsWith("http")) null else object : URLStreamHandler() {
                    override fun openConnection(url: URL): URLConnection = throw SecurityException("Permission denied (missing INTERNET permission?)")
                }
            }
            val client = open()
            wait { done -> client.start { session -> say(if (session.isFailure) "failed" else "started"); done() } }
            client.track("denied")
            client.flush()
            wait { done -> client.waiting { say("waiting $it"); done() } }
        }
        "play" -> { // Google Play throws SecurityException
            InstallReferrerClient.throwing = argument
            val client = deeplink(Application(File(folder)), options)
            wait { done -> client.match { link -> say(link.fold({ "link " + it?.path }, { "failed" })); done() } }
        }
    }
    exitProcess(0)
}

private fun wait(call: (done: () -> Unit) -> Unit) {
    val latch = CountDownLatch(1)
    call(latch::countDown)
    latch.await()
}

private fun untilEmpty(client: Deeplink) {
    var left = 1
    while (left > 0) {
        wait { done -> client.waiting { left = it; done() } }
        Thread.sleep(20)
    }
}
