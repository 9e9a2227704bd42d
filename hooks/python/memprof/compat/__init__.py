"""Other libraries' interfaces over memprof: code written for them runs by changing one import."""
