"""Which tokens may come next, so that an answer gets the form that was asked for.

A form is compiled once, on the thread of whoever asks for it, and followed by one matcher per request beside
the sampler. The grammar engine is llguidance, an optional package that is imported with the first form. Masks
leave here as bytes: nothing here knows an array, a request or a step.
"""
