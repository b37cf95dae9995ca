"""Model families: config translation and the function that writes the program, one file each."""
